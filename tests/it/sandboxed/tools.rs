//! Toolchains that must work under the default: from caches, without a network.

use std::path::PathBuf;

use super::support::{Cell, User, assert_lines, has};

#[test]
fn python_has_its_processes_locks_and_shared_memory() {
    if !has("python3") {
        return;
    }
    for goal in ["", "sandbox: {network: none}\n"] {
        let told = Cell::new().told(
            goal,
            "cat > t.py <<'EOF'
import multiprocessing as m, tempfile
from multiprocessing import shared_memory
def double(n): return n * 2
if __name__ == '__main__':
    print(m.Pool(2).map(double, [1, 2, 3]))
    q = m.Queue(); p = m.Process(target=q.put, args=('sent',)); p.start(); print(q.get()); p.join()
    s = shared_memory.SharedMemory(create=True, size=8); s.buf[0] = 7; print(s.buf[0]); s.close(); s.unlink()
    print(tempfile.TemporaryFile().write(b'abc'))
EOF
            python3 t.py",
        );
        // Its tracker of shared memory ends by itself, a moment after python.
        let told: Vec<&str> = told.lines().filter(|line| !line.contains("left by this command")).collect();
        assert_lines(&told.join("\n"), &["[2, 4, 6]", "sent", "7", "3"]);
    }
}

#[test]
fn archives_are_unpacked() {
    for user in [User::Own, User::Nobody] {
        let Some(cell) = Cell::of(user) else { continue };
        let told = cell.told(
            "",
            "mkdir -p in/deep; echo one > in/deep/f; chmod 750 in/deep; ln -s f in/deep/l; tar czf a.tgz in
            mkdir out; tar xzf a.tgz -C out; cat out/in/deep/l; stat -c %a out/in/deep",
        );
        assert_lines(&told, &["one", "750"]);
    }
}

/// A crate without dependencies and one that has it in a registry of the cargo home would need a download; a git
/// dependency on this machine goes through the same cache.
#[test]
fn cargo_builds_offline_from_its_cache_and_fetches_into_it() {
    if !has("cargo") || !has("git") {
        return;
    }
    let cell = Cell::new();
    let cargo = |name: &str, usual: &str| {
        let set = std::env::var(name).map(PathBuf::from).ok();
        set.or_else(|| std::env::var("HOME").ok().map(|home| PathBuf::from(home).join(usual)))
    };
    // The toolchain is this machine's, the cargo home the sandbox's own.
    if let Some(rustup) = cargo("RUSTUP_HOME", ".rustup").filter(|dir| dir.is_dir()) {
        cell.sandbox.set("RUSTUP_HOME", rustup.to_str().expect("UTF-8"));
    }
    cell.sandbox.sh("cd ..; mkdir -p dep/src; cd dep; echo 'pub fn one() -> u8 { 1 }' > src/lib.rs
        printf '[package]\\nname = \"dep\"\\nversion = \"1.0.0\"\\nedition = \"2021\"\\n' > Cargo.toml
        git init -q; git add -A; git -c user.name=T -c user.email=t@e.org commit -q -m start");
    let dep = cell.sandbox.root().join("dep");
    cell.sandbox.write(
        "Cargo.toml",
        format!(
            "[package]\nname = \"it\"\nversion = \"1.0.0\"\nedition = \"2021\"\n[dependencies]\n\
             dep = {{ git = \"file://{}\" }}\n",
            dep.display()
        ),
    );
    cell.sandbox.write("src/main.rs", "fn main() { println!(\"{}\", dep::one()); }\n");
    let told = cell.told("", "cargo fetch -q && cargo build -q --offline && target/debug/it");
    assert!(told.trim_end().ends_with('1') && !told.contains("error"), "{told}");
    assert!(cell.sandbox.home().join(".cargo/git/db").is_dir());
}

#[test]
fn npm_installs_from_its_cache() {
    if !has("npm") {
        return;
    }
    let cell = Cell::new();
    cell.sandbox.sh("cd ..; mkdir dep; cd dep; echo 'module.exports = 1' > index.js
        echo '{\"name\": \"dep\", \"version\": \"1.0.0\"}' > package.json");
    cell.sandbox.write("package.json", r#"{"name": "it", "version": "1.0.0"}"#);
    let told = cell.told(
        "",
        "npm pack --silent ../dep && npm install --silent --offline --no-audit ./dep-1.0.0.tgz && rm -r node_modules \
         && npm ci --silent --offline --no-audit && node -p 'require(\"dep\")'",
    );
    assert!(told.lines().last() == Some("1"), "{told}");
    assert!(cell.sandbox.home().join(".npm/_cacache").is_dir());
}

#[test]
fn pip_installs_a_wheel_into_an_environment() {
    if !has("python3") || !has("pip") {
        return;
    }
    let cell = Cell::new();
    // A wheel is an archive with three files of metadata.
    cell.sandbox.write(
        "make.py",
        "import zipfile\n\
         z = zipfile.ZipFile('dep-1.0-py3-none-any.whl', 'w')\n\
         d = 'dep-1.0.dist-info/'\n\
         z.writestr('dep.py', 'one = 1\\n')\n\
         z.writestr(d + 'METADATA', 'Metadata-Version: 2.1\\nName: dep\\nVersion: 1.0\\n')\n\
         z.writestr(d + 'WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n\
         z.writestr(d + 'RECORD', 'dep.py,,\\n' + d + 'METADATA,,\\n' + d + 'WHEEL,,\\n' + d + 'RECORD,,\\n')\n\
         z.close()\n",
    );
    let told = cell.told(
        "",
        "python3 make.py && pip install -q --no-index --find-links . --target lib dep 2>&1 | grep -v -i notice
        PYTHONPATH=lib python3 -c 'import dep; print(dep.one)'",
    );
    assert!(told.lines().last() == Some("1"), "{told}");
}

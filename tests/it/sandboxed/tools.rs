//! Toolchains that must work under the default: from caches, without a network.

use super::support::{Cell, User, assert_lines, has};

#[test]
fn python_has_its_processes_locks_and_shared_memory() {
    if !has("python3") {
        return;
    }
    let goals = ["", "sandbox: {network: none}\n"];
    for (user, goal) in User::ALL.into_iter().flat_map(|user| goals.map(|goal| (user, goal))) {
        let Some(cell) = Cell::of(user) else { continue };
        let told = cell.told(
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
    for user in User::ALL {
        let Some(cell) = Cell::of(user) else { continue };
        let told = cell.told(
            "",
            "mkdir -p in/deep; echo one > in/deep/f; chmod 750 in/deep; ln -s f in/deep/l; tar czf a.tgz in
            mkdir out; tar xzf a.tgz -C out; cat out/in/deep/l; stat -c %a out/in/deep",
        );
        assert_lines(&told, &["one", "750"]);
    }
}

#[test]
fn cargo_fetches_into_its_cache_and_builds_and_tests_from_it() {
    if !has("git") {
        return;
    }
    for user in User::ALL {
        let Some(cell) = Cell::of(user) else { continue };
        let Some(rust) = cell.rust() else { continue };
        let rust: Vec<&str> = rust.iter().map(String::as_str).collect();
        cell.sandbox.sh("cd ..; mkdir -p dep/src; cd dep; echo 'pub fn one() -> u8 { 1 }' > src/lib.rs
            printf '[package]\\nname = \"dep\"\\nversion = \"1.0.0\"\\nedition = \"2021\"\\n' > Cargo.toml
            git init -q; git add -A; git -c user.name=T -c user.email=t@e.org commit -q -m start");
        let dep = cell.sandbox.root().join("dep");
        let manifest = format!(
            "[package]\nname = \"it\"\nversion = \"1.0.0\"\nedition = \"2021\"\n[dependencies]\ndep = {{ git = \"file://{}\" }}\n",
            dep.display()
        );
        cell.sandbox.write("Cargo.toml", manifest);
        cell.sandbox.write(
            "src/main.rs",
            "fn main() { println!(\"{}\", dep::one()); }\n#[test]\nfn one() { assert_eq!(dep::one(), 1); }\n",
        );
        let told = cell.told_behind(
            &rust,
            "",
            "cargo fetch -q && cargo build -q --offline && target/debug/it && cargo test -q --offline | grep 'test result'",
        );
        assert!(told.starts_with("1\ntest result: ok. 1 passed") && !told.contains("error"), "{user:?}: {told}");
        assert!(cell.sandbox.home().join(".cargo/git/db").is_dir());
    }
}

#[test]
fn cargo_builds_and_tests_a_project_from_a_warm_registry() {
    for user in User::ALL {
        let Some(cell) = Cell::of(user) else { continue };
        let Some(rust) = cell.rust() else { continue };
        let rust: Vec<&str> = rust.iter().map(String::as_str).collect();
        cell.sandbox.write(
            "Cargo.toml",
            "[package]\nname = \"it\"\nversion = \"1.0.0\"\nedition = \"2021\"\n[dependencies]\nitoa = \"1\"\n",
        );
        cell.sandbox.write(
            "src/lib.rs",
            "pub fn text(n: u32) -> String { itoa::Buffer::new().format(n).to_owned() }\n\
             #[test]\nfn writes() { assert_eq!(text(42), \"42\"); }\n",
        );
        if !cell.warm(&rust, "cargo fetch -q") {
            return;
        }
        let told = cell.told_behind(
            &rust,
            "",
            "cargo build -q --offline && cargo test -q --offline --lib | grep 'test result'; ls ~/.cargo/registry/src/*/ | wc -l",
        );
        assert!(told.starts_with("test result: ok. 1 passed") && told.trim_end().ends_with("\n1"), "{user:?}: {told}");
    }
}

#[test]
fn npm_builds_and_tests_a_project_from_a_warm_cache() {
    if !has("npm") {
        return;
    }
    for user in User::ALL {
        let Some(cell) = Cell::of(user) else { continue };
        cell.sandbox.write(
            "package.json",
            r#"{"name": "it", "version": "1.0.0", "dependencies": {"is-odd": "3.0.1"},
                "scripts": {"build": "node -e 'fs.writeFileSync(\"built.js\", \"module.exports = require(\\\"is-odd\\\")\")'",
                            "test": "node -e 'console.log(require(\"./built.js\")(3))'"}}"#,
        );
        if !cell.warm(&[], "npm install --silent --no-audit --no-fund && rm -r node_modules") {
            return;
        }
        let told = cell.told("", "npm ci --silent --offline --no-audit && npm run --silent build && npm test --silent");
        assert_lines(&told, &["true"]);
    }
}

#[test]
fn pip_installs_from_a_warm_cache_and_a_project_is_tested() {
    for user in User::ALL {
        let Some(cell) = Cell::of(user) else { continue };
        cell.sandbox.write("pyproject.toml", "[project]\nname = \"it\"\nversion = \"1.0\"\ndependencies = [\"six\"]\n");
        cell.sandbox.write(
            "test_it.py",
            "import six, unittest\nclass It(unittest.TestCase):\n    def test_it(self): self.assertTrue(six.PY3)\n",
        );
        if !cell.warm(&[], "python3 -m venv .venv && .venv/bin/pip download -q -d ../wheels six==1.17.0 && rm -r .venv")
        {
            return;
        }
        let told = cell.told(
            "",
            "python3 -m venv .venv && .venv/bin/pip install -q --disable-pip-version-check --no-index --find-links ../wheels six
            .venv/bin/python -m unittest -v 2>&1 | grep -E '^(OK|Ran|test_it)' | cut -d' ' -f1,2",
        );
        assert!(told.contains("Ran 1\nOK"), "{user:?}: {told}");
    }
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

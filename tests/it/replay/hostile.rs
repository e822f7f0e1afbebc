//! Files that are no whole cassette, and recordings of hostile commands.

use std::path::Path;
use std::process::Command;

use serde_json::json;
use sha2::{Digest, Sha256};

use super::sealed::packed;
use super::support::{Recording, refused};
use crate::provider::{Reply, Script};
use crate::sandbox::{PATIENCE, Sandbox};

fn recorded() -> Recording {
    let script = Script::new()
        .agent(Reply::call("bash", json!({"command": "rm -rf precious; echo gone"})))
        .agent(Reply::call("bash", json!({"command": "sleep 300", "run_in_background": true})))
        .agent(Reply::complete("done"))
        .judge(Reply::verdict("met", "yes", ""));
    let recording = Recording::new(script, "goal: x\nchecks: ['true']\n");
    recording.run(0);
    recording
}

#[test]
fn what_is_not_whole_is_refused_with_its_reason() {
    let recording = recorded();
    let plain = std::fs::read(packed(&recording)).expect("read");
    let zst = recording.sandbox.root().join("run.cassette.zst");
    recording.sandbox.run(["cassette", "pack", "latest", "-o", zst.to_str().expect("UTF-8")]).expect_code(0);
    let zst = std::fs::read(zst).expect("read");
    let head = String::from_utf8_lossy(plain.split(|byte| *byte == b'\n').next().expect("a head")).into_owned();
    let flipped = |bytes: &[u8], at: usize| {
        let mut bytes = bytes.to_vec();
        bytes[at] ^= 4;
        bytes
    };
    let newer = head.replace("\"format\":\"1.0\"", "\"format\":\"1.9\"");
    let last = plain[..plain.len() - 1].iter().rposition(|byte| *byte == b'\n').expect("lines") + 1;
    let files: [(&str, Vec<u8>, &str); 10] = [
        ("torn.jsonl", plain[..plain.len() - 1].to_vec(), "incomplete"),
        ("truncated.jsonl", plain[..plain.len() / 2].to_vec(), "incomplete"),
        ("endless.jsonl", plain[..last].to_vec(), "incomplete"),
        ("truncated.zst", zst[..zst.len() / 2].to_vec(), "incomplete"),
        ("flipped.jsonl", flipped(&plain, plain.len() - 40), "digest"),
        ("flipped.zst", flipped(&zst, zst.len() / 2), "seal"),
        ("minor.jsonl", format!("{newer}\n{{\"type\":\"video\"}}\n").into_bytes(), "newer spettro (format 1.9"),
        ("major.jsonl", b"{\"type\":\"head\",\"format\":\"2.0\"}\n".to_vec(), "newer spettro (format 2.0"),
        ("foreign", b"\x7fELF and so on".to_vec(), "is no cassette"),
        ("empty", Vec::new(), "is no cassette"),
    ];
    let elsewhere = Sandbox::new();
    for (name, bytes, reason) in files {
        let path = elsewhere.write(name, bytes);
        let refused = elsewhere.run([Path::new("replay"), &path]).expect_code(31);
        assert!(refused.stderr.contains(reason) && refused.stdout.is_empty(), "{name}: {}", refused.stderr);
        let json = [Path::new("replay"), &path, Path::new("--output-format"), Path::new("json")];
        elsewhere.run(json).expect_code(31);
        let bisect = [Path::new("replay"), &path, Path::new("--git-bisect")];
        elsewhere.run(bisect).expect_code(125);
    }
    let left = std::fs::read_dir(elsewhere.root().join("tmp")).expect("there").count();
    assert_eq!((left, elsewhere.spettro_home().exists()), (0, false), "nothing was begun");
}

/// Each byte of a small file, changed: none is ever taken for a recording that replays.
#[test]
fn a_changed_byte_never_replays() {
    let recording = recorded();
    let plain = std::fs::read(packed(&recording)).expect("read");
    let elsewhere = Sandbox::new();
    for part in 0..24 {
        let mut bytes = plain.clone();
        let at = (bytes.len() - 1) * part / 23;
        bytes[at] ^= 1 << (part % 7);
        let path = elsewhere.write("flipped.jsonl", bytes);
        let finished = elsewhere.run([Path::new("replay"), &path]);
        assert_eq!(finished.code, Some(31), "byte {at}: {finished:?}");
    }
}

/// What the kernel saw of a replay of `rm -rf` and a job.
#[test]
fn no_process_starts_no_socket_is_made_and_nothing_is_written_elsewhere() {
    if !Command::new("strace").arg("true").output().is_ok_and(|output| output.status.success()) {
        println!("skipped: no strace here, or it may not trace");
        return;
    }
    let recording = recorded();
    let file = packed(&recording);
    let elsewhere = Sandbox::new();
    let victim = elsewhere.write("precious/file", "keep me");
    let trace = elsewhere.root().join("trace");
    let mut command = elsewhere.command("strace");
    command.args([
        "-f",
        "-s",
        "300",
        "-e",
        "trace=process,network,openat,mkdir,mkdirat,rename,renameat,renameat2",
        "-o",
    ]);
    command.arg(&trace).arg(env!("CARGO_BIN_EXE_spettro")).arg("replay").arg(&file);
    let finished = elsewhere.start(command).wait(PATIENCE);
    assert!(matches!(finished.code, Some(0 | 32)), "{finished:?}");
    assert!(victim.exists());
    let tmp = elsewhere.root().join("tmp");
    let tmp = tmp.to_str().expect("UTF-8");
    let calls = elsewhere.read(&trace);
    let count = |name: &str| calls.lines().filter(|line| line.contains(&format!(" {name}("))).count();
    assert_eq!(count("execve"), 1, "the replay itself");
    assert_eq!((count("fork"), count("vfork"), count("execveat")), (0, 0, 0));
    for line in calls.lines() {
        let clone = line.contains(" clone(") || line.contains(" clone3(");
        assert!(!clone || line.contains("CLONE_THREAD"), "a thread is no process: {line}");
        let socket = [" socket(", " connect(", " bind(", " sendto("].iter().any(|call| line.contains(call));
        assert!(!socket, "{line}");
        let writes = ["O_WRONLY", "O_RDWR", "O_CREAT", " mkdir", " rename"].iter().any(|word| line.contains(word));
        assert!(!writes || line.contains(tmp) || line.contains("/dev/null") || beneath(line), "{line}");
    }
}

/// A small file that unpacks to a line of very many values: refused before it takes the memory that they would.
#[test]
fn values_without_end_take_no_memory() {
    let recording = recorded();
    let plain = std::fs::read_to_string(packed(&recording)).expect("read");
    let values = format!("[{}[]]", "[],".repeat(10 << 20));
    let unknown =
        format!("{{\"type\":\"fact\",\"seq\":1,\"t\":\"2026-01-01T00:00:00.000Z\",\"kind\":\"later\",\"x\":{values}}}");
    let head = plain.lines().next().expect("a head");
    let bomb = zstd::encode_all(format!("{head}\n{unknown}\n").as_bytes(), 3).expect("packed");
    assert!(bomb.len() < 20_000, "{} bytes", bomb.len());
    let elsewhere = Sandbox::new();
    let path = elsewhere.write("bomb.cassette.zst", bomb);
    let mut command = elsewhere.command("sh");
    // 600 MB of addresses, the program's own among them.
    command.args(["-c", "ulimit -v 600000 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_spettro")]);
    command.arg("replay").arg(&path).arg("--allow-incomplete");
    let refused = elsewhere.start(command).wait(PATIENCE).expect_code(31);
    assert!(refused.stderr.contains("more values than any recording has"), "{}", refused.stderr);
}

/// The file of a session's folder that holds its workspace: as untrusted as a cassette.
#[test]
fn a_hostile_base_in_a_folder_is_refused_in_bounded_memory() {
    let recording = recorded();
    let base = recording.sandbox.session_dir().join("base.zst");
    let row = |path: &str, content: &str| {
        let sha256: String = Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect();
        let bytes = content.len();
        json!({"path": path, "kind": "file", "bytes": bytes, "sha256": sha256, "content": content}).to_string() + "\n"
    };
    let zstd = |text: String| zstd::encode_all(text.as_bytes(), 1).expect("packed");
    let megabyte = "0".repeat(1 << 20);
    let inside = row("precious/file", "keep me");
    let bombs = [
        ("contents", zstd((0..80).map(|n| row(&format!("f{n}"), &megabyte)).collect()), "contents are larger"),
        ("a line", zstd("0".repeat(200 << 20)), "larger than any"),
        ("another content", zstd(inside.replace("keep me", "Keep me")), "another digest"),
        ("a way out", zstd(inside.replace("precious/file", "../file")), "no path inside a workspace"),
        ("no compression", inside.into_bytes(), "base.zst"),
    ];
    let elsewhere = Sandbox::new();
    let replayed = || {
        let mut command = elsewhere.command("sh");
        command.args(["-c", "ulimit -v 600000 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_spettro")]);
        command.arg("replay").arg(recording.sandbox.session_dir());
        elsewhere.start(command).wait(PATIENCE).expect_code(31)
    };
    for (name, bytes, reason) in bombs {
        assert!(bytes.len() < 200_000, "{name}: {} bytes", bytes.len());
        std::fs::write(&base, bytes).expect("written");
        let refused = replayed();
        assert!(refused.stderr.contains(reason) && refused.stdout.is_empty(), "{name}: {}", refused.stderr);
    }
    std::fs::remove_file(&base).expect("it is there");
    pipe(&base);
    replayed();
}

fn pipe(path: &Path) {
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
}

/// Nobody ever writes into it: whoever opened it as a file would wait for ever.
#[test]
fn a_pipe_is_no_recording() {
    let recording = recorded();
    let elsewhere = Sandbox::new();
    let path = elsewhere.root().join("pipe.cassette.zst");
    pipe(&path);
    let path = path.to_str().expect("UTF-8");
    for verb in ["verify", "show", "lint"] {
        let refused = elsewhere.run(["cassette", verb, path]).expect_code(31);
        assert!(refused.stderr.contains("it is no file"), "{verb}: {}", refused.stderr);
    }
    elsewhere.run(["cassette", "diff", path, path]).expect_code(31);
    elsewhere.run(["replay", path]).expect_code(31);
    let dir = recording.sandbox.session_dir();
    let wires = dir.join("wire.jsonl");
    std::fs::remove_file(&wires).expect("it is there");
    pipe(&wires);
    let refused = elsewhere.run([Path::new("replay"), &dir]).expect_code(31);
    assert!(refused.stderr.contains("wire.jsonl"), "{}", refused.stderr);
}

#[test]
fn a_pipe_in_place_of_an_output_is_refused() {
    let script = Script::new()
        .agent(Reply::bash("seq 1 3000"))
        .agent(Reply::complete("done"))
        .judge(Reply::verdict("met", "yes", ""));
    let recording = Recording::new(script, "goal: x\n");
    recording.run(0);
    let output = recording.sandbox.session_dir().join("spool/1");
    std::fs::remove_file(&output).expect("it is there");
    pipe(&output);
    let said = refused(&recording.sandbox.session_dir(), &[], 31);
    assert!(said.contains("spool:1"), "{said}");
}

/// `--perturb` really gives the program other variables.
#[test]
fn other_variables_are_those_of_another_process() {
    if !Command::new("strace").arg("true").output().is_ok_and(|output| output.status.success()) {
        println!("skipped: no strace here, or it may not trace");
        return;
    }
    let recording = recorded();
    let file = packed(&recording);
    let elsewhere = Sandbox::new();
    let trace = elsewhere.root().join("trace");
    let mut command = elsewhere.command("strace");
    command.args(["-f", "-v", "-s", "300", "-e", "trace=execve", "-o"]).arg(&trace);
    command.arg(env!("CARGO_BIN_EXE_spettro")).arg("replay").arg(&file).args(["--perturb", "--output-format", "json"]);
    let finished = elsewhere.start(command).wait(PATIENCE);
    let report: serde_json::Value = serde_json::from_str(&finished.stdout).expect("a report");
    let variants = report["variants"].as_array().expect("a list");
    assert!(variants.iter().any(|one| one["what"] == "other variables" && one["agrees"] == true), "{variants:?}");
    let calls = elsewhere.read(&trace);
    let again: Vec<&str> =
        calls.lines().filter(|line| line.contains("execve(") && line.contains("\"replay\"")).collect();
    assert_eq!(again.len(), 2, "{calls}");
    for variable in ["HOME=/nonexistent/home", "TZ=Pacific/Kiritimati", "LANG=tr_TR.UTF-8", "TMPDIR="] {
        assert!(again[1].contains(variable), "{variable}: {}", again[1]);
    }
}

/// A call that names its folder by a descriptor: strace shows no path of it.
fn beneath(line: &str) -> bool {
    line.contains("at(") && !line.contains("AT_FDCWD") && !line.contains("\"/")
}

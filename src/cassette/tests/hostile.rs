//! Files that were made to do harm.

use std::io::Write;

use super::*;

/// The lines of a whole plain cassette, without its end.
fn lines(lab: &Lab) -> Vec<String> {
    let text = std::fs::read_to_string(packed(lab, "x.jsonl", Parts::Everything)).expect("text");
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.pop();
    lines
}

fn read(bytes: &[u8]) -> String {
    let file = tempfile::NamedTempFile::new().expect("made");
    std::fs::write(file.path(), bytes).expect("written");
    Tape::of_incomplete_file(file.path()).map(|_| String::new()).unwrap_or_else(|error| error.to_string())
}

fn with(lines: &[String], more: &[String]) -> String {
    let all: Vec<String> = lines.iter().chain(more).map(|line| format!("{line}\n")).collect();
    read(all.concat().as_bytes())
}

#[test]
fn a_line_that_unpacks_to_more_than_64_mib_is_refused() {
    let lab = Lab::new();
    let head = &lines(&lab)[0];
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).expect("an encoder");
    encoder.write_all(format!("{head}\n").as_bytes()).expect("written");
    let zeros = vec![b' '; 1 << 20];
    for _ in 0..70 {
        encoder.write_all(&zeros).expect("written");
    }
    let bomb = encoder.finish().expect("packed");
    assert!(bomb.len() < 100_000, "{}", bomb.len());
    assert!(read(&bomb).contains("longer than 64 MiB"));
}

#[test]
fn a_window_larger_than_32_mib_is_refused() {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).expect("an encoder");
    encoder.window_log(27).expect("set");
    encoder.write_all(b"{\"type\":\"head\"}\n").expect("written");
    let said = read(&encoder.finish().expect("packed"));
    assert!(said.contains("cannot be unpacked"), "{said}");
}

#[test]
fn nesting_beyond_the_limit_is_refused() {
    let lab = Lab::new();
    let deep = format!(
        "{{\"type\":\"fact\",\"seq\":14,\"t\":\"t\",\"kind\":\"x\",\"a\":{}{}}}",
        "[".repeat(200),
        "]".repeat(200)
    );
    let said = with(&lines(&lab)[..14], &[deep]);
    assert!(said.contains("recursion limit"), "{said}");
}

#[test]
fn no_path_leads_out_of_the_workspace() {
    let lab = Lab::new();
    let lines = lines(&lab);
    let row =
        |path: &str| format!("{{\"type\":\"base\",\"path\":\"{path}\",\"kind\":\"file\",\"bytes\":0,\"sha256\":\"\"}}");
    assert_eq!(with(&lines, &[row("src/a b.rs")]), "");
    for path in ["", "/etc/passwd", "../x", "a/../../x", ".", "./a"] {
        let said = with(&lines, &[row(path)]);
        assert!(said.contains("is no path inside a workspace"), "{path}: {said}");
    }
}

#[test]
fn records_out_of_place_are_refused() {
    let lab = Lab::new();
    let lines = lines(&lab);
    let (fact, wire) =
        (&lines[1], lines.iter().find(|line| line.starts_with("{\"type\":\"wire\"")).expect("a wire line"));
    assert!(with(&lines, std::slice::from_ref(wire)).contains("a `wire` after a `spool`"));
    assert!(with(&lines[..2], std::slice::from_ref(fact)).contains("seq 1 where 2 is due"));
    let reply = "{\"type\":\"reply\",\"lane\":\"agent\",\"n\":1,\"sha256\":\"\",\"status\":200,\"headers\":[],\
                 \"body\":\"\",\"reads\":[]}";
    assert!(with(&lines, &[reply.to_owned()]).contains("does not belong"));
    let piece = |id: u64, at: u64| format!("{{\"type\":\"spool\",\"id\":{id},\"at\":{at},\"body\":\"x\"}}");
    assert!(with(&lines, &[piece(2, 0), piece(2, 5)]).contains("where 1 is due"));
    assert!(with(&lines, &[piece(2, 3)]).contains("apart from the others"));
    assert!(with(&lines, &[piece(2, 0), piece(1, 0)]).contains("apart from the others"));
}

#[test]
fn requests_that_do_not_hang_together_are_refused() {
    let lab = Lab::new();
    let dir = recorded(&lab);
    let text = std::fs::read_to_string(dir.join("wire.jsonl")).expect("text");
    let first: serde_json::Value = serde_json::from_str(text.lines().next().expect("a line")).expect("JSON");
    let all = lines(&Lab::new());
    let facts: Vec<String> = all[..14].to_vec();
    let wire = |keep: u64| {
        let mut line = serde_json::Map::from_iter([("type".to_owned(), json!("wire"))]);
        line.extend(first.as_object().expect("an object").clone());
        line["request"]["keep"] = json!(keep);
        serde_json::Value::Object(line).to_string()
    };
    assert!(with(&facts, &[wire(3)]).contains("of one that is not there"));
    assert!(with(&facts, &[wire(0), wire(u64::MAX)]).contains("is not where the one before it was"));
}

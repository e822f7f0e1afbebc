//! What a changed, cut or newer file is.

use proptest::prelude::*;

use super::*;

fn read(bytes: &[u8]) -> Result<Tape, CassetteError> {
    let file = tempfile::NamedTempFile::new().expect("made");
    std::fs::write(file.path(), bytes).expect("written");
    Tape::of_file(file.path())
}

fn whole(name: &str, parts: Parts) -> Vec<u8> {
    let lab = Lab::new();
    std::fs::read(packed(&lab, name, parts)).expect("read")
}

/// The file of these lines with an end that fits them.
fn closed(lines: &[String], counts: &str) -> Vec<u8> {
    let mut text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    text.push_str(&format!("{{\"type\":\"end\",\"counts\":{counts},\"outcome\":null,\"sha256\":\""));
    let digest = digest(&text);
    text.push_str(&format!("{digest}\"}}\n"));
    text.into_bytes()
}

#[test]
fn a_compressed_cassette_cut_anywhere_or_with_any_byte_changed_is_not_whole() {
    let whole = whole("x.cassette.zst", Parts::Everything);
    assert!(read(&whole).is_ok());
    for cut in 0..whole.len() {
        let error = read(&whole[..cut]).expect_err("cut");
        assert!(matches!(error, CassetteError::NotOne { .. } | CassetteError::Incomplete(_)), "{cut}: {error}");
    }
    for index in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[index] ^= 1 << (index % 8);
        assert!(read(&flipped).is_err(), "byte {index}");
    }
    assert!(read(&[&whole[..], b"\n"].concat()).is_err(), "something follows");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_plain_cassette_cut_or_changed_anywhere_is_not_whole(at in 0.0..1.0f64, bit in 0..8u8, replies: bool) {
        let parts = if replies { Parts::Replies } else { Parts::Everything };
        let whole = whole("x.jsonl", parts);
        let index = (at * whole.len() as f64) as usize;
        let error = read(&whole[..index]).expect_err("cut");
        prop_assert!(matches!(error, CassetteError::Incomplete(_) | CassetteError::NotOne { .. }), "{}", error);
        let mut flipped = whole.clone();
        flipped[index] ^= 1 << bit;
        prop_assert!(read(&flipped).is_err(), "byte {}", index);
    }
}

#[test]
fn every_byte_of_the_end_counts() {
    for parts in [Parts::Replies, Parts::Everything] {
        let whole = whole("x.jsonl", parts);
        let start = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').expect("lines") + 1;
        for index in start..whole.len() {
            for bit in 0..8 {
                let mut flipped = whole.clone();
                flipped[index] ^= 1 << bit;
                assert!(read(&flipped).is_err(), "byte {index}, bit {bit}");
            }
        }
    }
}

#[test]
fn a_file_that_breaks_off_can_be_read_as_far_as_it_goes() {
    let lab = Lab::new();
    for name in ["x.cassette.zst", "y.jsonl"] {
        let out = lab.temp.path().join(name);
        let dir = lab.dir("s");
        if !dir.exists() {
            recorded(&lab);
        }
        pack_as(&dir, &out, Parts::Everything).expect("packed");
        let whole = std::fs::read(&out).expect("read");
        std::fs::write(&out, &whole[..whole.len() - 1]).expect("cut");
        assert!(matches!(Tape::of_file(&out), Err(CassetteError::Incomplete(_))), "{name}");
        let tape = Tape::of_incomplete_file(&out).expect("read");
        assert_eq!((tape.facts().len(), tape.end(), tape.outcome()), (14, None, Some(Outcome::Met)));
        assert_eq!(tape.exchanges(Lane::Agent).len(), 3);
    }
}

#[test]
fn a_changed_cassette_is_refused_with_the_reason() {
    let text = String::from_utf8(whole("x.jsonl", Parts::Replies)).expect("text");
    let lines: Vec<&str> = text.lines().collect();
    let join = |lines: &[&str]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    let corrupt = |content: &str, why: &str| {
        let error = read(content.as_bytes()).err();
        let fits = matches!(&error, Some(CassetteError::Corrupt { reason, .. }) if reason.contains(why));
        assert!(fits, "{why}: {error:?}");
    };
    corrupt(&text.replace("[DONE]", "[GONE]"), "digest");
    corrupt(&text.replace("Make", "Fake"), "digest");
    corrupt(&join(&[lines[0], lines[2], lines[3], lines[4]]), "out of order");
    corrupt(&join(&[lines[0], lines[1], lines[2], lines[4]]), "digest");
    corrupt(&text.replace("\"reply\":3", "\"reply\":4"), "digest");
    corrupt(&format!("{text}{}\n", lines[1]), "follows the end");
    corrupt(&join(&[lines[0], lines[0]]), "head");
    corrupt(&join(&[lines[0], "{\"type\":\"facts\"}"]), "unknown variant");
    corrupt(&text.replace("[0,16,20]", "[0,16,99999]"), "reads");
    corrupt(&text.replace("[0,16,20]", "[0,20,16]"), "reads");
    assert!(matches!(read(join(&lines[..4]).as_bytes()), Err(CassetteError::Incomplete(_))));
    for foreign in
        ["", "hello\n", "{}\n", "[1]\n", "{\"type\":\"reply\"}\n", "{\"kind\":\"spettro session\",\"v\":1}\n"]
    {
        assert!(matches!(read(foreign.as_bytes()), Err(CassetteError::NotOne { .. })), "{foreign}");
    }
    assert!(matches!(read(join(&lines[1..]).as_bytes()), Err(CassetteError::NotOne { .. })));
    assert!(matches!(Tape::of_file(Path::new("/")), Err(CassetteError::NotOne { .. })));
    assert!(matches!(Tape::of_file(Path::new("/no/such")), Err(CassetteError::Io { .. })));
    // Counts that lie, under a digest that fits.
    let lines: Vec<String> = lines[..4].iter().map(|line| (*line).to_owned()).collect();
    assert!(read(&closed(&lines, "{\"reply\":3}")).is_ok());
    let error = read(&closed(&lines, "{\"reply\":4}")).expect_err("refused");
    assert!(error.to_string().contains("counts"), "{error}");
}

#[test]
fn a_newer_format_is_named() {
    let text = String::from_utf8(whole("x.jsonl", Parts::Replies)).expect("text");
    let lines: Vec<&str> = text.lines().collect();
    let read = |lines: &[&str]| read((lines.join("\n") + "\n").as_bytes());
    let major = read(&["{\"type\":\"head\",\"format\":\"2.0\"}"]);
    assert!(matches!(&major, Err(CassetteError::Newer { format, .. }) if format == "2.0"), "{major:?}");
    let head = lines[0].replace("\"format\":\"1.0\"", "\"format\":\"1.3\"");
    let minor = read(&[&head, "{\"type\":\"video\"}"]);
    assert!(matches!(&minor, Err(CassetteError::Newer { format, .. }) if format == "1.3"), "{minor:?}");
    let odd = lines[0].replace("\"format\":\"1.0\"", "\"format\":\"one\"");
    assert!(matches!(read(&[&odd]), Err(CassetteError::Corrupt { .. })));
    // A newer minor that uses nothing new is read.
    let lines = [head, lines[1].to_owned()];
    assert!(super::format::read(&closed(&lines, "{\"reply\":1}")).is_ok());
}

#[test]
fn what_takes_more_room_than_its_text_is_bounded() {
    let text = String::from_utf8(whole("x.jsonl", Parts::Everything)).expect("text");
    let head = text.lines().next().expect("a head").to_owned();
    let fact = |seq: u64, value: &str| {
        format!("{{\"type\":\"fact\",\"seq\":{seq},\"t\":\"t\",\"kind\":\"later\",\"a\":\"\\\"[\\\\\",\"x\":{value}}}")
    };
    let file = |values: &[String]| {
        let facts = (1..).zip(values).map(|(seq, value)| fact(seq, value));
        let lines: Vec<String> = std::iter::once(head.clone()).chain(facts).collect();
        closed(&lines, &format!("{{\"fact\":{}}}", values.len()))
    };
    let reason = |values: &[String]| read(&file(values)).expect_err("refused").to_string();
    // What stands in a string is text, and an escaped quote does not end it.
    let tape = read(&file(&[format!("\"{}\\\"{}\"", "[".repeat(2 << 20), "{".repeat(2 << 20))])).expect("read");
    assert!(matches!(tape.facts()[0].fact, Fact::Unknown(_)));
    assert!(read(&file(&[format!("[{}0]", "0,".repeat(1_000_000))])).is_ok());
    assert!(reason(&[format!("[{}0]", "0,".repeat(1_100_000))]).contains("more values"));
    assert!(reason(&[format!("[{}{{}}]", "{},".repeat(140_000))]).contains("more values"), "an object takes more");
    let many = vec![format!("[{}0]", "0,".repeat(1_000_000)); 17];
    assert!(reason(&many).contains("more values"), "and all together are bounded too");
    let long = vec![format!("\"{}\"", "x".repeat(30 << 20)); 3];
    assert!(reason(&long).contains("`later`) have more than 64 MiB"));
}

//! Where two runs part.

use super::*;

fn tapes(second: &str, judged: &[u8]) -> (Tape, Tape) {
    let lab = Lab::new();
    let one = Tape::of_session(&recorded(&lab)).expect("read");
    let two = Tape::of_session(&recorded_as(&lab, "t", second, judged)).expect("read");
    (one, two)
}

#[test]
fn two_recordings_of_the_same_have_no_difference() {
    let (one, two) = tapes(&second(), b"");
    assert_eq!(diff(&one, &two), None);
}

#[test]
fn another_message_is_named_by_its_place() {
    let (one, two) = tapes(&rest(&["one", "tiger"]), b"");
    let found = diff(&one, &two).expect("a difference");
    assert_eq!((found.lane, found.n, found.what), (Lane::Agent, 3, What::Request));
    let offset = "\"messages\":[{\"content\":\"one\"},{\"content\":\"t".len() as u64;
    let place = Place { message: Some(1), pointer: "/messages/1/content".to_owned(), offset };
    assert_eq!(found.place, Some(place));
    assert_eq!(found.diff, "-two\n+tiger\n");
}

#[test]
fn a_message_more_is_a_difference() {
    let (one, two) = tapes(&rest(&["one", "two", "three"]), b"");
    let found = diff(&one, &two).expect("a difference").place.expect("a place");
    assert_eq!((found.message, found.pointer.as_str()), (Some(2), "/messages/2"));
}

#[test]
fn replies_of_stripped_tapes_are_compared_by_their_bytes() {
    let lab = Lab::new();
    let mut tapes = Vec::new();
    for (id, judged) in [("a", &b"{\"verdict\":\"met\"}"[..]), ("b", b"{\"verdict\":\"unmet\"}")] {
        let out = lab.temp.path().join(id);
        pack_as(&recorded_as(&lab, id, &second(), judged), &out, Parts::Replies).expect("packed");
        tapes.push(Tape::of_file(&out).expect("read"));
    }
    let found = diff(&tapes[0], &tapes[1]).expect("a difference");
    assert_eq!((found.lane, found.n, found.what), (Lane::Judge, 1, What::Reply));
    assert_eq!(found.place.expect("a place").pointer, "/verdict");
    assert_eq!(found.diff, "-met\n+unmet\n");
}

#[test]
fn a_call_that_only_one_made_is_named() {
    let lab = Lab::new();
    let long = Tape::of_session(&recorded(&lab)).expect("read");
    let session = lab.create("short");
    session.append(frozen()).expect("appended");
    let first = first();
    Call { lane: Lane::Agent, n: 1, rest: &first, keep: 0, body: STREAM, reads: &[0] }.write(&session);
    let short = Tape::of_session(&lab.dir("short")).expect("read");
    let found = diff(&long, &short).expect("a difference");
    assert_eq!((found.lane, found.n, found.what), (Lane::Agent, 2, What::OnlyInFirst));
    let found = diff(&short, &long).expect("a difference");
    assert_eq!((found.lane, found.n, found.what), (Lane::Agent, 2, What::OnlyInSecond));
}

#[test]
fn a_long_line_is_cut_to_what_differs() {
    let (a, b) = (format!("{}left{}", "x".repeat(5_000), "y".repeat(5_000)), "x".repeat(5_000) + "right");
    let told = text_diff(&a, &b);
    assert!(told.contains("left") && told.contains("right") && told.len() < 1_000, "{told}");
    let lines: Vec<String> = (0..500).map(|n| format!("line {n}")).collect();
    let mut other = lines.clone();
    other[400] = "changed".to_owned();
    let told = text_diff(&lines.join("\n"), &other.join("\n"));
    let around = " line 397\n line 398\n line 399\n-line 400\n+changed\n line 401\n line 402\n line 403\n";
    assert_eq!(told, around);
}

//! The wire log.

use super::*;

pub(super) fn attempt<'a>(n: u64, front: &'a [u8], keep: u64, add: &'a [&'a [u8]]) -> WireAttempt<'a> {
    WireAttempt {
        lane: Lane::Agent,
        n,
        attempt: 1,
        method: "POST",
        url: "http://127.0.0.1:1/v1/messages",
        request_headers: &[],
        front,
        keep,
        add,
        sha256: "abcd",
        status: Some(200),
        response_headers: &[],
        body: b"data: {}\n\n",
        reads: &[0, 4],
        end: "eof",
        ms: 12,
        redacted: false,
    }
}

#[test]
fn a_body_in_parts_stands_as_the_whole_wherever_it_was_parted() {
    let lab = Lab::new();
    let session = lab.create("s");
    let line = |parts: &[&[u8]]| {
        let (offset, bytes) = session.wire(&attempt(1, b"{}", 0, parts)).expect("written");
        let text = std::fs::read(lab.dir("s").join("wire.jsonl")).expect("read");
        text[offset as usize..][..bytes as usize].to_vec()
    };
    let all = HARD.as_bytes();
    let whole = line(&[all]);
    for at in 0..=all.len() {
        assert_eq!(line(&[&all[..at], &all[at..]]), whole, "parted at {at}");
    }
}

#[test]
fn an_attempt_comes_back_byte_for_byte() {
    let lab = Lab::new();
    let session = lab.create("s");
    let headers = [("content-type".to_owned(), "text/event-stream".to_owned())];
    // Cut inside a character, CRLF, no final blank line, NUL, every byte there is.
    let all: Vec<u8> = (0..=255).collect();
    let bodies: [&[u8]; 4] = [b"data: {\"a\":\"\xc3\xa9\"}\r\n\r\nevent: x", b"cut \xf0\x9f\xa6", &all, b""];
    let parts = [&all[..100], &all[100..]];
    let mut places = Vec::new();
    for (n, body) in (1..).zip(bodies) {
        let sent = WireAttempt {
            request_headers: &headers,
            response_headers: &headers,
            body,
            redacted: n == 2,
            ..attempt(n, HARD.as_bytes(), 7, &parts)
        };
        places.push(session.wire(&sent).expect("written"));
    }
    let failed = WireAttempt { status: None, body: b"", reads: &[], end: "connect", ..attempt(5, b"{", 0, &[]) };
    places.push(session.wire(&failed).expect("written"));
    let mut next = 0;
    for (index, (offset, bytes)) in places.iter().enumerate() {
        assert_eq!(*offset, next, "one after another");
        next += bytes;
        let line = read_wire(&lab.dir("s"), *offset, *bytes).expect("read back");
        assert_eq!((line.lane, line.n, line.attempt, line.ms), (Lane::Agent, index as u64 + 1, 1, 12));
        assert_eq!(line.request.sha256, "abcd");
        let Some(body) = bodies.get(index) else {
            assert_eq!((line.response.status, line.end.as_str()), (None, "connect"));
            continue;
        };
        assert_eq!(line.response.body.0, *body);
        assert_eq!(line.response.reads, [0, 4]);
        assert_eq!(line.response.headers, headers);
        assert_eq!(line.request.headers, headers);
        assert_eq!((line.request.front.0.as_slice(), line.request.keep), (HARD.as_bytes(), 7));
        assert_eq!(line.request.add.0, all);
        assert_eq!((line.end.as_str(), line.redacted), ("eof", index == 1));
    }
    let text = read_text(&lab.dir("s").join("wire.jsonl"));
    assert_eq!(text.lines().count(), 5, "one line an attempt");
    assert!(text.lines().next().expect("a line").contains("event: x"), "UTF-8 stays readable");
}

#[test]
fn a_place_without_a_whole_line_is_corrupt() {
    let lab = Lab::new();
    let session = lab.create("s");
    let (offset, bytes) = session.wire(&attempt(1, b"{}", 0, &[b"x"])).expect("written");
    session.wire(&attempt(2, b"{}", 0, &[b"x"])).expect("written");
    for (offset, bytes) in [(offset, bytes - 1), (offset + 1, bytes - 1), (offset, bytes * 9), (u64::MAX, 2), (0, 0)] {
        let error = read_wire(&lab.dir("s"), offset, bytes).err();
        assert!(matches!(error, Some(SessionError::Corrupt { .. })), "{offset} {bytes}: {error:?}");
    }
}

#[test]
fn what_no_settled_fact_names_is_cut_from_the_end_on_open() {
    let lab = Lab::new();
    let session = lab.create("s");
    let unnamed = session.wire(&attempt(1, b"{}", 0, &[b"first"])).expect("written");
    let named = session.wire(&attempt(1, b"{}", 0, &[b"second"])).expect("written");
    session.append(call(Lane::Agent, 1)).expect("appended");
    session.append(settled(Lane::Agent, 1, vec![super::attempt(named)])).expect("appended");
    session.wire(&attempt(2, b"{}", 0, &[b"third"])).expect("written");
    drop(session);
    let path = lab.dir("s").join("wire.jsonl");
    let mut content = std::fs::read(&path).expect("read");
    content.extend_from_slice(b"{\"torn");
    std::fs::write(&path, content).expect("written");
    let opened = lab.open("s").expect("opened");
    assert_eq!(std::fs::metadata(&path).expect("there").len(), named.0 + named.1);
    assert_eq!(read_wire(&lab.dir("s"), unnamed.0, unnamed.1).expect("only the end is cut").request.add.0, b"first");
    let next = opened.session.wire(&attempt(2, b"{}", 0, &[b"again"])).expect("written");
    assert_eq!(next.0, named.0 + named.1);
    assert_eq!(read_wire(&lab.dir("s"), next.0, next.1).expect("whole").request.add.0, b"again");
}

#[test]
fn a_wire_log_that_lost_its_end_with_the_machine_is_noted_and_goes_on_with_a_whole_line() {
    let lab = Lab::new();
    let session = lab.create("s");
    let first = session.wire(&attempt(1, b"{}", 0, &[b"first"])).expect("written");
    let second = session.wire(&attempt(2, b"{}", 0, &[b"second"])).expect("written");
    for (n, place) in [(1, first), (2, second)] {
        session.append(call(Lane::Agent, n)).expect("appended");
        session.append(settled(Lane::Agent, n, vec![super::attempt(place)])).expect("appended");
    }
    drop(session);
    let path = lab.dir("s").join("wire.jsonl");
    std::fs::OpenOptions::new().write(true).open(&path).and_then(|file| file.set_len(second.0 + 9)).expect("cut");
    let opened = lab.open("s").expect("opened");
    assert!(opened.notes.iter().any(|note| note.contains("wire.jsonl")), "{:?}", opened.notes);
    let next = opened.session.wire(&attempt(3, b"{}", 0, &[b"third"])).expect("written");
    assert_eq!(next.0, second.0);
    assert_eq!(read_wire(&lab.dir("s"), next.0, next.1).expect("whole").n, 3);
    drop(opened);
    std::fs::remove_file(&path).expect("removed");
    let opened = lab.open("s").expect("opened");
    assert!(opened.notes.iter().any(|note| note.contains("missing")), "{:?}", opened.notes);
}

#[test]
fn two_thousand_steps_cost_two_thousand_times_one() {
    let lab = Lab::new();
    let session = lab.create("s");
    let mut keep = 0;
    let mut sizes = Vec::new();
    for n in 1..=2_000 {
        let add = vec![b'm'; 300];
        sizes.push(session.wire(&attempt(n, b"{\"model\":\"m\",", keep, &[&add])).expect("written").1);
        keep += 300;
    }
    let (first, last) = (sizes[0], sizes[1_999]);
    assert!(last <= first + 12, "an attempt costs its own bytes: {first}, then {last}");
    let size = std::fs::metadata(lab.dir("s").join("wire.jsonl")).expect("there").len();
    assert_eq!(size, sizes.iter().sum::<u64>());
}

#[test]
fn a_copy_that_keeps_no_attempts_has_no_wire_log() {
    let lab = Lab::new();
    let session = lab.create("s");
    session.keep_no_wires();
    assert_eq!(session.wire(&attempt(1, b"{}", 0, &[b"x"])).expect("accepted"), (0, 0));
    assert!(!lab.dir("s").join("wire.jsonl").exists());
}

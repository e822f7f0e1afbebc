//! A line of the log: what is written is what is read.

use serde_json::{Map, Value};

use super::*;

fn line(seq: u64, fact: Fact) -> Line {
    let id = fact.is_entry().then(|| format!("e{seq}"));
    let parent = id.is_some().then(|| "e1".to_owned());
    Line { seq, t: "2026-11-29T12:03:41.512Z".into(), id, parent, fact }
}

fn write(line: &Line) -> String {
    serde_json::to_string(line).expect("a line serializes")
}

#[test]
fn every_kind_comes_back_as_it_was_and_is_known() {
    let mut kinds = Vec::new();
    for (seq, fact) in (2..).zip(samples().into_iter().chain(asides())) {
        let line = line(seq, fact);
        let text = write(&line);
        assert!(!text.contains('\n'), "{text}");
        assert_eq!(serde_json::from_str::<Line>(&text).expect(&text), line, "{text}");
        let object: Map<String, Value> = serde_json::from_str(&text).expect("an object");
        let kind = object["kind"].as_str().expect("a kind").to_owned();
        assert!(Fact::KINDS.contains(&kind.as_str()), "{kind}");
        kinds.push(kind);
        // The fact's own fields never take the envelope's names: each key stands once.
        let keys = ["seq", "t", "id", "parent", "kind"].map(|key| text.matches(&format!("\"{key}\":")).count());
        let top = object.keys().take_while(|key| *key != "kind").count();
        assert!(top <= 4 && keys[0] == 1 && keys[1] == 1, "{text}");
    }
    kinds.sort();
    kinds.dedup();
    let mut known = Fact::KINDS.map(str::to_owned).to_vec();
    known.sort();
    assert_eq!(kinds, known, "the samples hold one of every kind");
}

#[test]
fn the_envelope_comes_first_in_a_fixed_order() {
    let text = write(&line(7, Fact::Iteration { iteration: 3 }));
    assert_eq!(
        text,
        r#"{"seq":7,"t":"2026-11-29T12:03:41.512Z","id":"e7","parent":"e1","kind":"iteration","iteration":3}"#
    );
    let text = write(&line(8, Fact::Interrupted { reason: "x".into() }));
    assert_eq!(text, r#"{"seq":8,"t":"2026-11-29T12:03:41.512Z","kind":"interrupted","reason":"x"}"#);
}

#[test]
fn an_unknown_kind_is_kept_as_it_is() {
    let text = r#"{"seq":9,"t":"t","id":"e9","parent":"e8","kind":"checkpoint","before":42,"spans":[{"a":1.5},null]}"#;
    let line: Line = serde_json::from_str(text).expect("an unknown kind reads");
    assert!(matches!(&line.fact, Fact::Unknown(fact) if fact.kind == "checkpoint"), "{line:?}");
    assert_eq!((line.seq, line.id.as_deref()), (9, Some("e9")));
    assert_eq!(write(&line), text);
}

#[test]
fn a_known_kind_with_wrong_fields_is_an_error_and_a_new_field_is_none() {
    for bad in [
        r#"{"seq":1,"t":"t","kind":"iteration"}"#,
        r#"{"seq":1,"t":"t","kind":"iteration","iteration":"x"}"#,
        r#"{"seq":1,"t":"t","kind":"message","role":"nobody","text":""}"#,
        r#"{"seq":1,"t":"t","kind":"call","lane":"agent"}"#,
        r#"{"seq":1,"kind":"iteration","iteration":1}"#,
        r#"{"t":"t","kind":"iteration","iteration":1}"#,
        r#"{"seq":1,"t":"t"}"#,
        r#"{"seq":1,"t":"t","iteration":1,"kind":"iteration"}"#,
        r#"{"seq":-1,"t":"t","kind":"iteration","iteration":1}"#,
        r#"{"seq":1,"t":"t","kind":"iteration","iteration":1} x"#,
        "[]",
    ] {
        assert!(serde_json::from_str::<Line>(bad).is_err(), "{bad}");
    }
    let newer = r#"{"seq":1,"t":"t","kind":"iteration","iteration":1,"added_later":true}"#;
    assert_eq!(serde_json::from_str::<Line>(newer).expect(newer).fact, Fact::Iteration { iteration: 1 });
}

#[test]
fn the_schema_names_every_known_kind() {
    let schema = serde_json::to_string(&schemars::schema_for!(Line)).expect("a schema");
    for kind in Fact::KINDS {
        assert!(schema.contains(&format!("\"const\":\"{kind}\"")), "{kind}");
    }
    assert!(!schema.contains("\"const\":\"unknown\""), "what is unknown has no schema");
    assert!(schema.contains(r#""required":["seq","t"]"#), "id and parent may be absent");
}

//! A composed stream decodes to the reply it was made of.

use super::*;
use crate::event::Usage;
use crate::model::reply::Stop;
use crate::session::Block;

fn decoded(wire: Wire, bytes: &[u8]) -> Result<Reply, ModelError> {
    let mut decoder = wire.decoder();
    let mut deltas = Vec::new();
    for chunk in bytes.chunks(7) {
        decoder.push(chunk, &mut deltas)?;
    }
    decoder.finish()
}

/// Without what is kept around blocks.
fn unwrapped(mut reply: Reply) -> Reply {
    reply.blocks.retain(|block| !matches!(block, Block::Thinking { raw: Some(raw), .. } if envelope::is(raw)));
    reply
}

fn blocks(wire: Wire) -> Vec<Block> {
    let thinking = match wire {
        Wire::Anthropic => r#"{"type":"thinking","thinking":"hm\n","signature":"s=="}"#,
        Wire::OpenAiResponses => {
            r#"{"type":"reasoning","encrypted_content":"s==","summary":[{"type":"summary_text","text":"hm\n"}]}"#
        }
        Wire::OpenAiChat => r#"{"reasoning_content":"hm\n"}"#,
        Wire::Gemini => r#"{"text":"hm\n","thought":true,"thoughtSignature":"s=="}"#,
    };
    // A call of this wire is whole or nothing.
    let broken = if wire == Wire::Gemini { "{}" } else { "{\"comm" };
    vec![
        Block::Thinking { text: "hm\n".into(), raw: Some(thinking.into()) },
        Block::Text { text: "«secret:X»\n\"two\" lines\r\n".into() },
        Block::Raw { raw: r#"{"type":"server_thing","a":[1,2]}"#.into() },
        Block::Call { id: "a".into(), name: "bash".into(), arguments: r#"{"command":"ls \\ \n"}"#.into() },
        Block::Call { id: "b".into(), name: "bash".into(), arguments: broken.into() },
        Block::Call { id: "c".into(), name: "grep".into(), arguments: "{}".into() },
    ]
}

fn usage(wire: Wire) -> Usage {
    let anthropic = wire == Wire::Anthropic;
    // Google's writes of its cache are not reported.
    let written = if wire == Wire::Gemini { 0 } else { 100 };
    Usage {
        input_tokens: 1_000,
        output_tokens: 50,
        cache_read_tokens: 600,
        cache_write_tokens: written,
        cache_write_1h_tokens: if anthropic { 40 } else { 0 },
        reasoning_tokens: if anthropic { 0 } else { 20 },
    }
}

#[test]
fn what_was_composed_is_decoded() {
    for wire in Wire::ALL {
        let reply = |blocks: Vec<Block>, stop: Stop| Reply {
            blocks,
            stop,
            usage: Some(usage(wire)),
            model: Some("model-1".into()),
            input_transformations: Some(r#"{"cut":["x"]}"#.into()),
        };
        let text = || vec![Block::Text { text: "so".into() }];
        let refused = match wire {
            Wire::Anthropic => vec!["refusal", r#"{"category":"x"}"#],
            Wire::OpenAiResponses | Wire::OpenAiChat => vec!["content_filter", "I will not"],
            Wire::Gemini => {
                vec![r#"{"finishReason":"SAFETY","safetyRatings":[1]}"#, r#"{"blockReason":"OTHER","n":1}"#]
            }
        };
        let mut replies = vec![
            reply(blocks(wire), Stop::ToolUse),
            reply(blocks(wire), Stop::MaxTokens),
            reply(text(), Stop::End),
            reply(text(), Stop::Other("odd".into())),
            reply(Vec::new(), Stop::End),
            Reply { usage: None, model: None, input_transformations: None, ..reply(text(), Stop::End) },
        ];
        if matches!(wire, Wire::Anthropic | Wire::OpenAiChat) {
            replies.push(reply(text(), Stop::StopSequence));
            replies.push(reply(text(), Stop::ContextExceeded));
        }
        replies.extend(refused.into_iter().map(|words| reply(text(), Stop::Refused(words.into()))));
        for reply in replies {
            let bytes = wire.compose(&reply, true);
            let shown = || format!("{}: {}", wire.name(), String::from_utf8_lossy(&bytes));
            let whole = decoded(wire, &bytes);
            assert_eq!(whole.clone().map(unwrapped), Ok(reply), "{}", shown());
            // What is kept around blocks comes through as well.
            let whole = whole.unwrap();
            assert_eq!(decoded(wire, &wire.compose(&whole, true)), Ok(whole), "{}", shown());
        }
    }
}

#[test]
fn without_its_end_a_reply_is_cut_off() {
    for wire in Wire::ALL {
        let reply = Reply {
            blocks: vec![Block::Text { text: "so far".into() }],
            stop: Stop::End,
            usage: None,
            model: None,
            input_transformations: None,
        };
        let bytes = wire.compose(&reply, false);
        assert_eq!(decoded(wire, &bytes), Err(ModelError::Truncated));
        let mut decoder = wire.decoder();
        assert_eq!(decoder.push(&bytes, &mut Vec::new()), Ok(()));
        assert_eq!(decoder.partial().text, "so far");
    }
}

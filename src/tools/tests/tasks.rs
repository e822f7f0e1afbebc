//! The task graph, rule by rule and against an independent oracle.

use proptest::prelude::*;

use super::*;

fn entry(id: &str, status: Option<TaskStatus>, dependencies: &[&str]) -> Entry {
    Entry {
        id: Some(id.into()),
        content: Some(format!("do {id}")),
        status,
        dependencies: Some(dependencies.iter().map(|id| (*id).to_owned()).collect()),
    }
}

fn write(entries: Vec<Entry>) -> Change {
    Change { entries: Some(entries), ..Change::default() }
}

fn merge(entries: Vec<Entry>) -> Change {
    Change { merge: true, ..write(entries) }
}

fn done(graph: &TaskGraph, change: &Change) -> TaskGraph {
    apply(graph, change).expect("a change that holds").0
}

fn refused(graph: &TaskGraph, change: &Change) -> String {
    apply(graph, change).expect_err("a change that is refused").to_string()
}

fn ids(graph: &TaskGraph) -> Vec<&str> {
    graph.tasks.iter().map(|task| task.id.as_str()).collect()
}

fn unnamed(content: &str) -> Entry {
    Entry { content: Some(content.into()), ..Entry::default() }
}

#[test]
fn new_ids_are_one_above_the_highest_ever_used() {
    let graph = done(&TaskGraph::default(), &write(vec![unnamed("a"), entry("task-7", None, &[]), unnamed("b")]));
    assert_eq!(ids(&graph), ["task-8", "task-7", "task-9"]);
    let graph = done(&graph, &Change { delete: vec!["task-9".into()], ..Change::default() });
    let graph = done(&graph, &merge(vec![unnamed("c")]));
    assert_eq!(ids(&graph), ["task-8", "task-7", "task-10"]);
    let graph = done(&graph, &write(vec![]));
    assert_eq!(ids(&done(&graph, &write(vec![unnamed("d")]))), ["task-11"]);
    let odd = done(&TaskGraph::default(), &write(vec![entry("task-18446744073709551615", None, &[]), unnamed("a")]));
    assert_eq!(ids(&odd), ["task-18446744073709551615", "task-1"]);
}

#[test]
fn merge_keeps_absent_fields_and_replace_forgets_the_rest() {
    let graph = done(
        &TaskGraph::default(),
        &write(vec![entry("a", Some(TaskStatus::Completed), &[]), entry("b", None, &["a"])]),
    );
    let only_status = Entry { id: Some("b".into()), status: Some(TaskStatus::InProgress), ..Entry::default() };
    let merged = done(&graph, &merge(vec![only_status]));
    assert_eq!(merged.tasks[1].content, "do b");
    assert_eq!(merged.tasks[1].dependencies, ["a"]);
    assert_eq!(merged.tasks[1].status, TaskStatus::InProgress);
    let replaced = done(&merged, &write(vec![entry("b", None, &[])]));
    assert_eq!((ids(&replaced), replaced.tasks[0].status), (vec!["b"], TaskStatus::Pending));
    let no_content = Entry { id: Some("c".into()), ..Entry::default() };
    assert!(refused(&merged, &merge(vec![no_content])).contains("`todos[0].content` is missing"));
}

#[test]
fn self_references_and_cycles_are_rejected_with_their_path() {
    let empty = TaskGraph::default();
    assert!(refused(&empty, &write(vec![entry("a", None, &["a"])])).contains("task `a` depends on itself"));
    let round =
        vec![entry("x", None, &["a"]), entry("a", None, &["b"]), entry("b", None, &["c"]), entry("c", None, &["a"])];
    let text = refused(&empty, &write(round));
    assert!(text.contains("a → b → c → a"), "{text}");
    let graph = done(&empty, &write(vec![entry("a", None, &[]), entry("b", None, &["a"])]));
    let back = Entry { id: Some("a".into()), dependencies: Some(vec!["b".into()]), ..Entry::default() };
    assert!(refused(&graph, &merge(vec![back])).contains("cycle"));
}

#[test]
fn unknown_dependencies_are_dropped_with_a_note() {
    let (graph, notes) = apply(&TaskGraph::default(), &write(vec![entry("a", None, &["ghost"])])).expect("fine");
    assert!(graph.tasks[0].dependencies.is_empty());
    assert_eq!(notes, ["dropped the dependency of `a` on the unknown task `ghost`"]);
    assert!(render(&graph, &notes).ends_with("[dropped the dependency of `a` on the unknown task `ghost`]"));
}

#[test]
fn a_merge_does_not_start_or_finish_what_still_waits() {
    let graph = done(&TaskGraph::default(), &write(vec![entry("a", None, &[]), entry("b", None, &["a"])]));
    for to in [TaskStatus::InProgress, TaskStatus::Completed] {
        let text = refused(&graph, &merge(vec![entry("b", Some(to), &["a"])]));
        assert!(text.contains("`b` cannot be") && text.contains("waits for a"), "{text}");
        assert!(refused(&graph, &merge(vec![entry("new", Some(to), &["a"])])).contains("`new` cannot be"));
        // Not a merge, not gated.
        done(&graph, &write(vec![entry("a", None, &[]), entry("b", Some(to), &["a"])]));
    }
    for closed in [TaskStatus::Completed, TaskStatus::Cancelled] {
        done(&graph, &merge(vec![entry("b", Some(TaskStatus::InProgress), &["a"]), entry("a", Some(closed), &[])]));
    }
    done(&graph, &merge(vec![entry("b", Some(TaskStatus::Blocked), &["a"])]));
    let delete_first = Change {
        delete: vec!["a".into()],
        ..merge(vec![Entry { dependencies: None, ..entry("b", Some(TaskStatus::InProgress), &[]) }])
    };
    done(&graph, &delete_first);
}

#[test]
fn deleting_and_clearing_strip_references() {
    let graph = done(
        &TaskGraph::default(),
        &write(vec![
            entry("a", Some(TaskStatus::Completed), &[]),
            entry("b", Some(TaskStatus::Cancelled), &[]),
            entry("c", None, &["a", "b", "d"]),
            entry("d", None, &[]),
        ]),
    );
    let cleared = done(&graph, &Change { clear_completed: true, ..Change::default() });
    assert_eq!((ids(&cleared), &cleared.tasks[0].dependencies), (vec!["c", "d"], &vec!["d".to_owned()]));
    let (deleted, notes) =
        apply(&cleared, &Change { delete: vec!["d".into(), "nope".into()], ..Change::default() }).expect("fine");
    assert!(deleted.tasks[0].dependencies.is_empty());
    assert_eq!(notes, ["nothing to delete: no task `nope`"]);
}

#[test]
fn ids_that_contradict_each_other_are_refused() {
    let graph = done(&TaskGraph::default(), &write(vec![entry("a", None, &[])]));
    assert!(refused(&graph, &write(vec![entry("x", None, &[]), entry("x", None, &[])])).contains("twice"));
    let both = Change { delete: vec!["a".into()], ..merge(vec![entry("a", None, &[])]) };
    assert!(refused(&graph, &both).contains("both"));
    assert!(
        refused(&graph, &Change { known_only: true, ..merge(vec![entry("z", None, &[])]) }).contains("no task `z`")
    );
    assert!(refused(&graph, &Change { new_only: true, ..merge(vec![entry("a", None, &[])]) }).contains("already"));
    assert!(refused(&graph, &Change { look_up: Some("z".into()), ..Change::default() }).contains("no task `z`"));
}

#[test]
fn the_list_comes_in_dependency_order_with_what_is_derived() {
    let graph = done(
        &TaskGraph::default(),
        &write(vec![
            entry("late", None, &["early"]),
            entry("early", None, &[]),
            entry("free", Some(TaskStatus::Blocked), &[]),
        ]),
    );
    assert_eq!(
        render(&graph, &[]),
        "3 tasks, 3 open\n\
         {\"id\":\"early\",\"content\":\"do early\",\"status\":\"pending\",\"dependencies\":[],\"blocked_by\":[],\"ready\":true}\n\
         {\"id\":\"late\",\"content\":\"do late\",\"status\":\"pending\",\"dependencies\":[\"early\"],\"blocked_by\":[\"early\"],\"ready\":false}\n\
         {\"id\":\"free\",\"content\":\"do free\",\"status\":\"blocked\",\"dependencies\":[],\"blocked_by\":[],\"ready\":false}"
    );
    assert_eq!(render(&TaskGraph::default(), &[]), "no tasks");
}

/// The rules again, slowly and by other means: reachability by matrix, statuses by map.
fn oracle(graph: &TaskGraph, change: &Change) -> Option<BTreeMap<String, (TaskStatus, BTreeSet<String>)>> {
    let mut map: BTreeMap<String, (TaskStatus, BTreeSet<String>)> =
        graph.tasks.iter().map(|t| (t.id.clone(), (t.status, t.dependencies.iter().cloned().collect()))).collect();
    for id in &change.delete {
        map.remove(id);
        map.values_mut().for_each(|(_, deps)| {
            deps.remove(id);
        });
    }
    if let Some(entries) = &change.entries {
        let before = map.clone();
        if !change.merge {
            map.clear();
        }
        for e in entries {
            let id = e.id.clone().expect("named");
            if change.delete.contains(&id) || entries.iter().filter(|o| o.id.as_ref() == Some(&id)).count() > 1 {
                return None;
            }
            let slot = map.entry(id).or_insert((TaskStatus::Pending, BTreeSet::new()));
            slot.0 = e.status.unwrap_or(slot.0);
            if let Some(deps) = &e.dependencies {
                slot.1 = deps.iter().cloned().collect();
            }
        }
        let keys: Vec<String> = map.keys().cloned().collect();
        map.values_mut().for_each(|(_, deps)| deps.retain(|d| keys.contains(d)));
        let n = keys.len();
        let mut reach: Vec<Vec<bool>> =
            keys.iter().map(|a| keys.iter().map(|b| map[a].1.contains(b)).collect()).collect();
        for k in 0..n {
            for i in 0..n {
                for j in 0..n {
                    reach[i][j] |= reach[i][k] && reach[k][j];
                }
            }
        }
        if (0..n).any(|i| reach[i][i]) {
            return None;
        }
        if change.merge {
            for e in entries {
                let id = e.id.as_ref().expect("named");
                let now = map[id].0;
                let was = before.get(id).map(|(status, _)| *status);
                let open = map[id].1.iter().any(|d| !map[d].0.is_closed());
                let gated = now == TaskStatus::InProgress || now == TaskStatus::Completed;
                if gated && was != Some(now) && open {
                    return None;
                }
            }
        }
    }
    if change.clear_completed {
        let gone: Vec<String> = map.iter().filter(|(_, (s, _))| s.is_closed()).map(|(id, _)| id.clone()).collect();
        map.retain(|id, _| !gone.contains(id));
        map.values_mut().for_each(|(_, deps)| deps.retain(|d| !gone.contains(d)));
    }
    Some(map)
}

fn any_id() -> impl Strategy<Value = String> {
    (0u8..7).prop_map(|n| ["a", "b", "c", "d", "e", "task-3", "task-9"][usize::from(n)].to_owned())
}

fn any_status() -> impl Strategy<Value = TaskStatus> {
    (0u8..5).prop_map(|n| {
        ["pending", "active", "done", "blocked", "canceled"].map(|name| status_of(name).expect("a status"))
            [usize::from(n)]
    })
}

fn any_change() -> impl Strategy<Value = Change> {
    let entry =
        (any_id(), proptest::option::of(any_status()), proptest::option::of(proptest::collection::vec(any_id(), 0..3)))
            .prop_map(|(id, status, dependencies)| Entry {
                content: Some(format!("do {id}")),
                id: Some(id),
                status,
                dependencies,
            });
    (
        proptest::option::of(proptest::collection::vec(entry, 0..5)),
        any::<bool>(),
        proptest::collection::vec(any_id(), 0..2),
        proptest::bool::weighted(0.2),
    )
        .prop_map(|(entries, merge, delete, clear_completed)| Change {
            entries,
            merge,
            delete,
            clear_completed,
            ..Change::default()
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn any_row_of_changes_agrees_with_the_oracle(changes in proptest::collection::vec(any_change(), 1..8)) {
        let mut graph = TaskGraph::default();
        for change in changes {
            let expected = oracle(&graph, &change);
            let got = apply(&graph, &change);
            match (expected, got) {
                (None, Err(_)) => {}
                (Some(map), Ok((next, _))) => {
                    let flat: BTreeMap<_, _> = next.tasks.iter()
                        .map(|t| (t.id.clone(), (t.status, t.dependencies.iter().cloned().collect::<BTreeSet<_>>())))
                        .collect();
                    prop_assert_eq!(flat.len(), next.tasks.len());
                    prop_assert_eq!(flat, map);
                    prop_assert!(next.highest_id >= graph.highest_id);
                    let (sorted, stuck) = order(&next);
                    prop_assert!(stuck.is_empty());
                    for (i, task) in sorted.iter().enumerate() {
                        prop_assert!(task.dependencies.iter().all(|d| sorted[..i].iter().any(|t| t.id == *d)));
                    }
                    graph = next;
                }
                (expected, got) => prop_assert!(false, "oracle {expected:?}, got {got:?}"),
            }
        }
    }
}

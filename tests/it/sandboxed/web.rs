//! `web-fetch` in a run of the real program, against a server on this machine.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use serde_json::json;
use spettro::event::Outcome;

use super::support::Cell;
use crate::goal::support::Case;
use crate::provider::{Reply, Script};
use crate::sandbox::{Finished, PATIENCE};
use crate::supervision::support::met;

/// A server that answers by path until the test is over, and the heads of what it was asked.
struct Site {
    port: u16,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Site {
    fn start() -> Site {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let port = listener.local_addr().expect("bound").port();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let seen = heads.clone();
        // It ends with the process of the tests.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let mut head = Vec::new();
                let mut byte = [0];
                while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|length| length == 1) {
                    head.push(byte[0]);
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                seen.lock().expect("whole").push(head);
                if path == "/slow" {
                    // Nobody sends: it is slow.
                    let (_nobody, never) = std::sync::mpsc::channel::<()>();
                    let _ = never.recv_timeout(std::time::Duration::from_secs(3));
                }
                let (status, more, body) = match path.as_str() {
                    "/moved" => ("302 Found", "location: /page\r\nset-cookie: a=b\r\n".to_owned(), String::new()),
                    "/metadata" => {
                        ("302 Found", "location: http://169.254.169.254/latest\r\n".to_owned(), String::new())
                    }
                    "/long" => ("200 OK", "content-type: text/plain\r\n".to_owned(), "a line of it\n".repeat(5_000)),
                    _ => ("200 OK", "content-type: text/html\r\n".to_owned(), "<h1>Title</h1><p>A &amp; B".to_owned()),
                };
                let length = body.len();
                // Who does not listen to the end is not this server's concern.
                let _ = write!(stream, "HTTP/1.1 {status}\r\n{more}content-length: {length}\r\n\r\n{body}");
            }
        });
        Site { port, heads }
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    fn paths(&self) -> Vec<String> {
        let heads = self.heads.lock().expect("whole");
        heads.iter().map(|head| head.split(' ').nth(1).unwrap_or_default().to_owned()).collect()
    }
}

/// What the agent was told of each of these addresses, and the run.
fn fetched(cell: &Cell, goal: &str, urls: &[String]) -> (Vec<String>, Finished) {
    let call = |script: Script, url: &String| script.agent(Reply::call("web-fetch", json!({"url": url})));
    let script = urls.iter().fold(Script::new(), call).agent(Reply::complete("done")).judge(met());
    let (provider, goal) = cell.scripted(script, &format!("tools: {{allow: [web-fetch, goal-complete]{goal}\n"));
    let finished = cell.finish(&goal).expect_code(0);
    let requests = provider.agent_requests();
    let told = requests[1..].iter().map(|request| request.tool_results().last().expect("a result").text.clone());
    let told = told.take(urls.len()).collect();
    provider.finish();
    (told, finished)
}

#[test]
fn pages_are_fetched_without_anything_of_ours_and_redirects_followed() {
    let (cell, site) = (Cell::new(), Site::start());
    // A proxy that nobody serves: who used it would get nothing.
    for name in ["http_proxy", "HTTP_PROXY", "ALL_PROXY"] {
        cell.sandbox.set(name, "http://me:hunter2@127.0.0.1:9");
    }
    // The provider of the test is reached without it, too.
    cell.sandbox.set("NO_PROXY", "127.0.0.1");
    let urls = [site.url("/page"), site.url("/moved"), site.url("/long")];
    let (told, _) = fetched(&cell, ", web_private: true}", &urls);
    let page = format!("{}\nHTTP 200, text/html, 14 bytes of text\n\n# Title\n\nA & B", site.url("/page"));
    assert_eq!(told[0], page);
    assert_eq!(told[1], page);
    assert!(told[2].contains("a line of it\n") && told[2].contains("tool-output {\"id\":\"spool:"), "{}", told[2]);
    assert!(told[2].chars().count() < 16_300, "{}", told[2].len());
    assert_eq!(site.paths(), ["/page", "/moved", "/page", "/long"]);
    for head in site.heads.lock().expect("whole").iter() {
        let lower = head.to_ascii_lowercase();
        for none in ["authorization", "cookie", "proxy", "referer", "hunter2", "x-api-key"] {
            assert!(!lower.contains(none), "{none}: {head}");
        }
        assert!(lower.starts_with("get /") && lower.contains("user-agent: spettro/"), "{head}");
    }
}

#[test]
fn a_page_that_is_long_in_coming_is_no_idle_time() {
    let site = Site::start();
    let script = Script::new()
        .agent(Reply::call("web-fetch", json!({"url": site.url("/slow")})))
        .agent(Reply::complete("done"))
        .judge(met());
    let tools = "tools: {allow: [web-fetch, goal-complete], web_private: true}";
    let case = Case::new(script, &format!("goal: x\n{tools}\nlimits: {{idle: 1s}}"));
    let ended = case.run().expect(Outcome::Met);
    assert!(ended.finished.duration.as_secs() >= 3, "the page was slow");
    assert!(case.provider.agent_requests()[1].tool_results()[0].text.contains("# Title"));
    case.provider.finish();
}

#[test]
fn private_addresses_are_refused_by_every_name_unless_they_are_allowed() {
    let (cell, site) = (Cell::new(), Site::start());
    let port = site.port;
    let urls = [
        site.url("/page"),
        format!("http://localhost:{port}/page"),
        format!("http://127.1:{port}/page"),
        format!("http://2130706433:{port}/page"),
        format!("http://[::ffff:127.0.0.1]:{port}/page"),
        format!("http://0.0.0.0:{port}/page"),
        "http://169.254.169.254/latest".to_owned(),
    ];
    let (told, finished) = fetched(&cell, "}", &urls);
    for (url, told) in urls.iter().zip(&told) {
        assert!(told.contains("may not be accessed: ") && !told.contains("Title"), "{url}: {told}");
    }
    assert_eq!(site.paths(), [""; 0]);
    assert_eq!(finished.events_of("tool.denied").len(), urls.len(), "{}", finished.stdout);

    let urls = [urls[1].clone(), site.url("/metadata")];
    let (told, _) = fetched(&Cell::new(), ", web_private: true}", &urls);
    assert!(told[0].contains("# Title"), "{}", told[0]);
    assert!(told[1].contains("169.254.169.254 is a link-local address"), "{}", told[1]);
}

#[test]
fn the_network_policy_holds_for_pages_too() {
    let (site, other) = (Site::start(), Site::start());
    let goal = format!(", web_private: true}}\nsandbox: {{files: off, network: [{}]}}", site.port);
    let (told, _) = fetched(&Cell::new(), &goal, &[site.url("/page"), other.url("/page")]);
    assert!(told[0].contains("# Title"), "{}", told[0]);
    assert!(told[1].contains(&format!("the network of this run is [{}]", site.port)), "{}", told[1]);
    assert_eq!(other.paths(), [""; 0]);
    // Without a network there is no such tool.
    let goal = ", web_private: true}\nsandbox: {files: off, network: none}";
    let (told, _) = fetched(&Cell::new(), goal, &[site.url("/page")]);
    assert!(told[0].contains("`web-fetch` is not available in this run"), "{}", told[0]);
    assert_eq!(site.paths(), ["/page"]);
}

#[test]
fn a_goal_file_of_the_repository_cannot_open_private_addresses() {
    let cell = Cell::new();
    let yaml =
        "version: 1\ngoal: x\nmodel: anthropic/claude-sonnet-5-5\ntools: {allow: [web-fetch], web_private: true}\n";
    cell.sandbox.write("goal.yaml", yaml);
    let finished = cell.sandbox.run(["run", "--goal", "goal.yaml"]).expect_code(2);
    assert!(finished.stderr.contains("tools.web_private"), "{}", finished.stderr);
}

#[test]
fn a_replay_fetches_nothing() {
    let (cell, site) = (Cell::new(), Site::start());
    fetched(&cell, ", web_private: true}", &[site.url("/long"), site.url("/moved")]);
    let asked = site.paths().len();
    let session = cell.sandbox.session_dir();
    let finished = cell.sandbox.run(["replay", session.to_str().expect("UTF-8")]).expect_code(0);
    assert!(finished.duration < PATIENCE);
    assert_eq!(site.paths().len(), asked);
}

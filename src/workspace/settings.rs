//! Which of git's settings nobody may change while a run goes on.

/// Whether a setting of git (as `git config --list` names it) makes git run a program, now or some day, or read
/// settings from elsewhere, or lets somebody else in between it and a server.
pub(super) fn runs_a_program(name: &str, value: &str) -> bool {
    let Some((section, rest)) = name.split_once('.') else { return false };
    let key = rest.rsplit_once('.').map_or(rest, |(_, key)| key);
    match section {
        "alias" | "filter" | "include" | "includeif" | "instaweb" | "pager" | "hook" | "sendemail" => true,
        "core" => match key {
            "fsmonitor" => !is_off(value),
            "hookspath"
            | "sshcommand"
            | "editor"
            | "pager"
            | "askpass"
            | "gitproxy"
            | "alternaterefscommand"
            | "worktree" => true,
            _ => false,
        },
        "diff" => matches!(key, "command" | "textconv" | "external"),
        "merge" => key == "driver",
        "credential" => key == "helper",
        "difftool" | "mergetool" | "browser" | "man" | "guitool" => matches!(key, "cmd" | "path"),
        "gpg" => matches!(key, "program" | "defaultkeycommand"),
        "sequence" => key == "editor",
        "interactive" => key == "difffilter",
        "trailer" => matches!(key, "command" | "cmd"),
        "submodule" => key == "update" && value.starts_with('!'),
        "remote" => matches!(key, "uploadpack" | "receivepack" | "vcs" | "proxy"),
        "uploadpack" => key == "packobjectshook",
        "init" => key == "templatedir",
        "tar" => key == "command",
        "gc" => key == "recentobjectshook",
        "imap" => key == "tunnel",
        // What git-lfs itself writes into a repository is ordinary work.
        "lfs" => !matches!(
            key,
            "repositoryformatversion"
                | "access"
                | "locksverify"
                | "fetchinclude"
                | "fetchexclude"
                | "concurrenttransfers"
        ),
        "http" => match key {
            "proxy" | "sslcainfo" | "sslcapath" | "proxysslcainfo" | "curloptresolve" => true,
            "sslverify" => is_off(value),
            _ => false,
        },
        "url" => matches!(key, "insteadof" | "pushinsteadof"),
        // From then on another file of settings counts.
        "extensions" => key == "worktreeconfig" && !is_off(value),
        "protocol" => key == "allow",
        "web" => key == "browser",
        _ => false,
    }
}

/// As git reads a switch.
fn is_off(value: &str) -> bool {
    matches!(value.to_ascii_lowercase().as_str(), "" | "false" | "no" | "off" | "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_a_program_or_leads_elsewhere_is_told_from_ordinary_work() {
        for (name, value) in [
            ("tar.tar.gz.command", "./x"),
            ("gc.recentobjectshook", "./x"),
            ("lfs.customtransfer.x.path", "./x"),
            ("lfs.standalonetransferagent", "x"),
            ("lfs.extension.x.clean", "./x"),
            ("lfs.url", "https://example.org"),
            ("imap.tunnel", "./x"),
            ("http.proxy", "http://127.0.0.1:1"),
            ("http.https://example.org/.proxy", "http://127.0.0.1:1"),
            ("http.sslverify", "false"),
            ("http.https://example.org.sslverify", "0"),
            ("http.sslcainfo", "ca.pem"),
            ("remote.origin.proxy", "http://127.0.0.1:1"),
            ("url.https://evil.example/.insteadof", "https://example.org/"),
            ("url.https://evil.example/.pushinsteadof", "https://example.org/"),
            ("extensions.worktreeconfig", "true"),
            ("instaweb.httpd", "./x"),
            ("core.fsmonitor", "./x"),
        ] {
            assert!(runs_a_program(name, value), "{name}");
        }
        for (name, value) in [
            ("user.email", "me@example.org"),
            ("remote.origin.url", "../bare"),
            ("branch.main.merge", "refs/heads/main"),
            ("http.sslverify", "true"),
            ("http.postbuffer", "1"),
            ("lfs.repositoryformatversion", "0"),
            ("lfs.https://example.org/info/lfs.access", "basic"),
            ("extensions.worktreeconfig", "false"),
            ("extensions.objectformat", "sha256"),
            ("core.fsmonitor", "false"),
            ("tar.umask", "0"),
            ("gc.auto", "0"),
        ] {
            assert!(!runs_a_program(name, value), "{name}");
        }
    }
}

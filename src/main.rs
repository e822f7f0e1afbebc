fn main() {
    if std::env::args_os().nth(1).is_some_and(|verb| verb == "__zygote") {
        spettro::process::zygote_main();
    }
}

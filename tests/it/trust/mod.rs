//! Who may say what: goal files of the repository, hands in git's settings, hostile agents, and `spettro doctor`.

mod doctor;
mod goals;
#[cfg(target_os = "linux")]
mod hostile;
mod settings;

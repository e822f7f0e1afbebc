//! Who may say what: goal files of the repository, hands in git's settings, hostile agents, and `spettro doctor`.

#[cfg(target_os = "linux")]
mod beside;
mod doctor;
#[cfg(target_os = "linux")]
mod during;
mod goals;
#[cfg(target_os = "linux")]
mod hostile;
mod settings;
mod written;

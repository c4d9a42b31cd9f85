//! `dilocox-bootstrap`: see `dilocox::cli`.

fn main() -> std::process::ExitCode {
    dilocox::cli::bootstrap_main()
}

//! `dilocox-sim`: see `dilocox::sim::cli`.

fn main() -> std::process::ExitCode {
    dilocox::sim::cli::main()
}

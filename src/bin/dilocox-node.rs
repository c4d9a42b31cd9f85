//! `dilocox-node`: see `dilocox::cli`.

fn main() -> std::process::ExitCode {
    dilocox::cli::node_main()
}

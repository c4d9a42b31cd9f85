//! The subcommands of `dilocox-node` that end by themselves.

use serde_json::json;

use crate::{
    cli::{
        args::{BenchCommand, Command, GenerateArgs, IdentityArgs, RunsArgs},
        demo,
        failure::Failure,
        manifest, print,
        settings::{data_dir, default_threads},
        start::runtime,
        status,
    },
    node::{
        self,
        options::{BenchAllreduceOptions, BenchCodecOptions, GenerateOptions, RunsOptions},
    },
    observe::BenchReport,
};

/// Carries a subcommand out.
pub(super) fn dispatch(command: Command) -> Result<(), Failure> {
    match command {
        Command::Demo(args) => runtime()?.block_on(demo::run(args)),
        Command::Run(command) => manifest::dispatch(command),
        Command::Runs(args) => runs(args),
        Command::Identity(args) => identity(args),
        Command::Status(args) => status::show(&args),
        Command::Generate(args) => generate(args),
        Command::Bench(command) => bench(command),
        Command::Bootstrap(_) => unreachable!("the main function takes it"),
    }
}

fn runs(args: RunsArgs) -> Result<(), Failure> {
    let options = RunsOptions { bootstrap: args.bootstrap, timeout: args.timeout };
    let rows = runtime()?.block_on(node::runs(options))?;
    print::result(args.json, &json!({ "runs": rows }), || match rows.len() {
        0 => {
            "no run can be joined there yet; `dilocox-node --bootstrap ADDR --run FILE` founds one"
                .to_owned()
        }
        _ => node::table(&rows),
    });
    Ok(())
}

fn identity(args: IdentityArgs) -> Result<(), Failure> {
    let dir = data_dir(args.data_dir, "node")?;
    let identity = node::load_or_create_identity(&dir)?;
    let node_id = identity.node_id();
    let peer_id = node::peer_id_text(node_id);
    let shown = json!({ "node_id": node_id, "peer_id": peer_id, "data_dir": dir });
    print::result(args.json, &shown, || {
        format!("peer id  {peer_id}\nnode id  {node_id}\nkept in  {}", dir.display())
    });
    Ok(())
}

fn generate(args: GenerateArgs) -> Result<(), Failure> {
    if !(0.0..=10.0).contains(&args.temperature) {
        return Err(Failure::usage(
            format!("--temperature {} is impossible", args.temperature),
            "choose a value from 0 to 10",
        ));
    }
    let options = GenerateOptions {
        data_dir: data_dir(args.data_dir, "node")?,
        prompt: args.prompt,
        tokens: args.tokens as usize,
        temperature: args.temperature,
        seed: args.seed,
        threads: args.threads.unwrap_or_else(default_threads),
    };
    let (round, text) = node::generate(&options)?;
    let prompt = &options.prompt;
    let shown = json!({ "round": round, "prompt": prompt, "text": text });
    print::result(args.json, &shown, || format!("{prompt}{text}"));
    Ok(())
}

fn bench(command: BenchCommand) -> Result<(), Failure> {
    let (json, report) = match command {
        BenchCommand::Codec(args) => {
            let common = args.common;
            let options = BenchCodecOptions {
                floats: common.floats as usize,
                members: usize::from(args.peers),
                bits: common.bits,
                rounds: usize::from(common.rounds),
            };
            (common.json, node::bench_codec(&options)?)
        }
        BenchCommand::Allreduce(args) => {
            let common = args.common;
            let options = BenchAllreduceOptions {
                peers: usize::from(args.peers),
                floats: common.floats as usize,
                bits: common.bits,
                rounds: usize::from(common.rounds),
                upload_limit: args.upload_limit,
            };
            (common.json, runtime()?.block_on(node::bench_allreduce(options))?)
        }
        BenchCommand::Peer => {
            return runtime()?.block_on(node::bench_peer()).map_err(Failure::from);
        }
    };
    print::result(json, &report, || BenchReport::to_text(&report));
    Ok(())
}

//! stub
use crate::cli::{args::DemoArgs, failure::Failure};
pub(super) async fn run(_args: DemoArgs) -> Result<(), Failure> {
    Ok(())
}

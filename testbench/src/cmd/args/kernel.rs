//! The option that chooses the kernel.

use gradwire::kernels::Kernel;

/// The kernel.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct KernelArg {
    /// Kernel that encodes and decodes, by name: portable, or one that this processor has the
    /// instructions for [default: the fastest of these].
    #[arg(long, value_name = "K", value_parser = kernel)]
    pub kernel: Option<Kernel>,
}

impl KernelArg {
    /// The one asked for, or the fastest.
    #[must_use]
    pub fn kernel(self) -> Kernel {
        self.kernel.unwrap_or_else(Kernel::detect)
    }
}

/// Finds a kernel by its name. A name that another processor would know is as wrong here as any
/// other.
fn kernel(name: &str) -> Result<Kernel, String> {
    Kernel::available().find(|kernel| kernel.name() == name).ok_or_else(|| {
        let names: Vec<&str> = Kernel::available().map(Kernel::name).collect();
        format!("this processor runs no such kernel, only: {}", names.join(", "))
    })
}

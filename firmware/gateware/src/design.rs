//! Modules as Verilator builds them.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Error, Simulation};

/// The sources, where this crate was built.
const SOURCES: &str = env!("CARGO_MANIFEST_DIR");

/// A module to simulate, and how.
#[derive(Clone, Debug)]
pub struct Design {
    top: String,
    defines: Vec<String>,
    faults: Vec<String>,
    coverage: Option<PathBuf>,
}

impl Design {
    /// The module that `sim/TOP_sim.sv` wraps.
    #[must_use]
    pub fn new(top: &str) -> Self {
        Self { top: top.to_owned(), defines: Vec::new(), faults: Vec::new(), coverage: None }
    }

    /// With a fault that the sources have under `GW_FAULTS`, by its name there. One build serves
    /// all faults of a design.
    #[must_use]
    pub fn plant(self, fault: &str) -> Self {
        let mut design = self.define("GW_FAULTS");
        design.faults.push(format!("+{fault}"));
        design
    }

    /// With a macro.
    #[must_use]
    pub fn define(mut self, name: &str) -> Self {
        if !self.defines.iter().any(|define| define == name) {
            self.defines.push(name.to_owned());
        }
        self
    }

    /// With counters of what is covered, which go to this file when the simulation ends.
    #[must_use]
    pub fn coverage(mut self, file: &Path) -> Self {
        self.coverage = Some(file.to_owned());
        self
    }

    /// Builds the simulation, unless it is built already, and starts it. A build takes some 20
    /// seconds.
    ///
    /// # Errors
    /// There is no Verilator, it refuses the design, or the process cannot be started.
    pub fn start(&self) -> Result<Simulation, Error> {
        let program = self.build()?;
        Simulation::start(&self.top, &program, &self.faults, self.coverage.as_deref())
    }

    /// The program, whose folder is named by what it was made of.
    fn build(&self) -> Result<PathBuf, Error> {
        let folder = target().join(format!("{}-{:016x}", self.top, self.fingerprint()?));
        let program = folder.join("Vtop");
        if program.is_file() {
            return Ok(program);
        }
        let refused = |path: &Path| {
            let path = path.to_owned();
            move |source| Error::Io { path, source }
        };
        fs::create_dir_all(&folder).map_err(refused(&folder))?;
        // Tests in other processes may build the same design.
        let lock = folder.join("lock");
        let locked =
            File::create(&lock).and_then(|file| file.lock().map(|()| file)).map_err(refused(&lock))?;
        if program.is_file() {
            return Ok(program);
        }
        self.verilate(&folder)?;
        let built = folder.join("obj/Vtop");
        fs::rename(&built, &program).map_err(refused(&built))?;
        drop(locked);
        Ok(program)
    }

    fn verilate(&self, folder: &Path) -> Result<(), Error> {
        let sources = Path::new(SOURCES);
        let mut command = Command::new("verilator");
        command.args(["--cc", "--exe", "--build", "-j", "2", "-O3", "--x-assign", "unique", "-Wall"]);
        command.args(["-CFLAGS", "-std=c++17 -Wno-attributes"]);
        // The compiler takes longer than the clocks that are run once it is done.
        command.args(["-MAKEFLAGS", "OPT_FAST=-O1 OPT_GLOBAL=-O1 OPT_SLOW=-O0"]);
        command.args(["--prefix", "Vtop", "-Mdir"]).arg(folder.join("obj"));
        command.args(self.defines.iter().map(|name| format!("-D{name}")));
        if self.coverage.is_some() {
            command.arg("--coverage");
            // What is not counted, if a design has too much.
            let options = sources.join(format!("sim/{}.f", self.top));
            if options.is_file() {
                command.arg("-F").arg(options);
            }
        }
        command.arg(format!("+incdir+{}", sources.join("sim").display()));
        command.arg("-y").arg(sources.join("rtl")).args(["--top-module", &format!("{}_sim", self.top)]);
        command.args(["gw_pkg", "gw_nic_pkg"].map(|name| sources.join(format!("rtl/{name}.sv"))));
        command.arg(sources.join(format!("sim/{}_sim.sv", self.top)));
        command.arg(sources.join("sim/driver.cpp"));
        let output = command.output().map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => Error::NoVerilator,
            _ => Error::Io { path: "verilator".into(), source },
        })?;
        if output.status.success() {
            return Ok(());
        }
        let why = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        Err(Error::Refused { top: self.top.clone(), why })
    }

    /// A number that changes with every source and option.
    fn fingerprint(&self) -> Result<u64, Error> {
        let mut hasher = DefaultHasher::new();
        (&self.defines, self.coverage.is_some()).hash(&mut hasher);
        for folder in ["rtl", "sim"] {
            let folder = Path::new(SOURCES).join(folder);
            let files = fs::read_dir(&folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
            let files = files.map_err(|source| Error::Io { path: folder.clone(), source })?;
            let mut files: Vec<PathBuf> = files.into_iter().map(|file| file.path()).collect();
            files.sort();
            for path in files {
                // Another design's wrapper changes nothing here.
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                if name.ends_with("_sim.sv") && name != format!("{}_sim.sv", self.top) {
                    continue;
                }
                let bytes = fs::read(&path).map_err(|source| Error::Io { path, source })?;
                (name, bytes).hash(&mut hasher);
            }
        }
        Ok(hasher.finish())
    }
}

/// The folder of simulations: in cargo's target folder.
fn target() -> PathBuf {
    let folder = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    // A relative folder is the workspace's, whatever this process's is.
    Path::new(SOURCES).join("../..").join(folder).join("gateware")
}

// What Verilator counts in gw_nic for coverage: not the engines, which are counted alone, and no signal as wide as a beat. Each of
// these is compared byte by byte where it leaves, and together they would more than double the build.
--coverage-max-width 255
gw_nic.vlt

//! Published figures: the cells and claims of Chang et al. beside ours, and the subjects of their
//! figures.

pub mod cells;
pub mod claims;
pub mod figures;
mod setting;
pub mod tables;

//! Reads the Prometheus text format.

use std::collections::BTreeMap;

/// Samples by their series, as `name{label="value",...}` with labels in the order of their names.
#[derive(Debug, Clone)]
pub(crate) struct Samples(BTreeMap<String, f64>);

impl Samples {
    pub(crate) fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        Self(
            lines
                .map(|line| {
                    let (series, value) = line.rsplit_once(' ').unwrap();
                    (series.to_owned(), value.parse().unwrap())
                })
                .collect(),
        )
    }

    /// The value of a series, which must be there.
    #[track_caller]
    pub(crate) fn get(&self, series: &str) -> f64 {
        *self.0.get(series).unwrap_or_else(|| panic!("no {series} in {:?}", self.0.keys()))
    }

    /// The sum over all series of this name whose labels contain all of these pieces. Most series appear when they are
    /// first counted; the sum over none is zero.
    pub(crate) fn sum(&self, name: &str, pieces: &[&str]) -> f64 {
        let named = self.0.iter().filter(|(series, _)| {
            let of_name = series.split('{').next() == Some(name);
            of_name && pieces.iter().all(|piece| series.contains(piece))
        });
        // The sum over none would be -0.
        named.fold(0.0, |sum, (_, value)| sum + value)
    }

    pub(crate) fn series(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

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

    /// The value of a series; zero when it is not there.
    pub(crate) fn get(&self, series: &str) -> f64 {
        self.0.get(series).copied().unwrap_or_default()
    }

    /// The sum over all series of this name whose labels contain all of these pieces.
    pub(crate) fn sum(&self, name: &str, pieces: &[&str]) -> f64 {
        let named = self.0.iter().filter(|(series, _)| {
            let of_name = series.split('{').next() == Some(name);
            of_name && pieces.iter().all(|piece| series.contains(piece))
        });
        named.map(|(_, value)| value).sum()
    }

    pub(crate) fn series(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

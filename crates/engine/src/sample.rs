//! A result at its full size, looked at in some places: what is right of a small product may be wrong of a large one.

use crate::contract::Fusion;
use crate::epilogue::Parts;
use crate::judge::Random;
use crate::oracle::{Expected, Units};
use crate::problem::Problem;

/// Places that are drawn, beside the corners of the first and the last matrix.
const DRAWN: usize = 20;

/// Matrix, row, column.
pub type Place = (u64, u64, u64);

/// What the elements of a product are made of: those of a, of b, and the parts of the epilogue.
pub struct Elements<'a> {
    pub a: &'a dyn Fn(Place) -> f64,
    pub b: &'a dyn Fn(Place) -> f64,
    pub parts: &'a dyn Fn(Place) -> Parts<f64>,
}

/// Some places of a result, and what should be there; made once, and held against every candidate.
pub struct Sample {
    problem: Problem,
    units: Units,
    places: Vec<(Place, Expected, Parts<f64>)>,
}

impl Sample {
    /// Of a product that adds to nothing; a gated one's halves are not looked at.
    pub fn new(problem: &Problem, elements: &Elements<'_>) -> Sample {
        let (p, units) = (problem.product, Units::of(problem));
        let mut places: Vec<Place> = Vec::new();
        if p.batch > 0 && p.m > 0 && p.n > 0 && problem.beta == 0.0 && !problem.epilogue.gated {
            let mut random = Random::new(p.m ^ p.n.rotate_left(20) ^ p.k.rotate_left(40));
            let [m, n] = [p.m - 1, p.n - 1];
            places.extend([(0, 0, 0), (0, 0, n), (0, m, 0), (p.batch - 1, m, n)]);
            let mut below = |extent: u64| random.below(extent as usize) as u64;
            places.extend((0..DRAWN).map(|_| (below(p.batch), below(p.m), below(p.n))));
            places.sort_unstable();
            places.dedup();
        }
        let expected = |place: Place| {
            let (x, i, j) = place;
            let terms = (0..p.k).map(|s| ((elements.a)((x, i, s)), (elements.b)((x, s, j))));
            (place, Expected::sum(problem, terms, 0.0, &units), (elements.parts)(place))
        };
        Sample { problem: *problem, units, places: places.into_iter().map(expected).collect() }
    }

    /// Where it looks.
    pub fn places(&self) -> impl Iterator<Item = Place> {
        self.places.iter().map(|(place, ..)| *place)
    }

    /// What is wrong with what a candidate of this fusion has written.
    pub fn wrong(&self, fusion: Fusion, found: impl Fn(Place) -> f64) -> Option<String> {
        self.places.iter().find_map(|(place, sum, parts)| {
            let Expected { value, bound } = sum.finished(&self.problem, parts, fusion, &self.units);
            let got = found(*place);
            // NaN must fail too.
            let right = (got - value).abs() <= bound;
            (!right).then(|| format!("at full size {place:?} is {got:e}, should be {value:e} within {bound:e}"))
        })
    }
}

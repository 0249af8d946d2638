//! Small charts as SVG: panels with lines over a logarithmic axis. Drawing only; the figures come from the
//! experiments.

use std::fmt::Write;

const PANEL: (f64, f64) = (300.0, 210.0);
const MARGIN: (f64, f64) = (58.0, 34.0);
const HEAD: f64 = 62.0;
const COLOURS: [&str; 6] = [
    "#444444", "#b35806", "#2c7fb8", "#1b7837", "#762a83", "#c51b7d",
];
const DASHES: [&str; 6] = ["4 3", "1 3", "7 3", "none", "3 1", "none"];

/// A line of a panel.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// Index into the names of the chart: colour and dashes.
    pub(super) name: usize,
    /// Points (x, y); those that are no positive numbers are left out.
    pub(super) points: Vec<(f64, f64)>,
}

/// A panel.
#[derive(Clone, Debug)]
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) lines: Vec<Line>,
}

/// A chart of several panels with common axes.
#[derive(Clone, Debug)]
pub(super) struct Chart {
    pub(super) title: String,
    pub(super) x_label: String,
    pub(super) y_label: String,
    pub(super) names: Vec<String>,
    pub(super) columns: usize,
    /// The y axis is logarithmic as well.
    pub(super) log_y: bool,
    pub(super) panels: Vec<Panel>,
}

/// An axis: from value to a place between 0 and 1.
struct Axis {
    low: f64,
    high: f64,
    log: bool,
}

impl Axis {
    fn around(values: impl Iterator<Item = f64> + Clone, log: bool) -> Self {
        let usable = values.filter(|v| v.is_finite() && *v > 0.0);
        let low = usable.clone().fold(f64::INFINITY, f64::min);
        let high = usable.fold(0.0, f64::max);
        if !low.is_finite() {
            return Self {
                low: 0.1,
                high: 1.0,
                log,
            };
        }
        if log {
            let (low, high) = (low.log10().floor(), high.log10().ceil());
            let high = if high > low { high } else { low + 1.0 };
            return Self {
                low: 10f64.powf(low),
                high: 10f64.powf(high),
                log,
            };
        }
        Self {
            low: 0.0,
            high: high * 1.05,
            log,
        }
    }

    fn place(&self, value: f64) -> f64 {
        if self.log {
            (value / self.low).log10() / (self.high / self.low).log10()
        } else {
            (value - self.low) / (self.high - self.low)
        }
    }

    fn ticks(&self) -> Vec<f64> {
        if self.log {
            let (from, to) = (self.low.log10().round(), self.high.log10().round());
            let step = ((to - from) / 6.0).ceil().max(1.0);
            let count = ((to - from) / step) as usize;
            return (0..=count)
                .map(|n| 10f64.powf(from + n as f64 * step))
                .collect();
        }
        let rough = self.high / 5.0;
        let unit = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|m| m * unit);
        let step = step.into_iter().find(|s| *s >= rough).unwrap_or(rough);
        let count = (self.high / step) as usize;
        (0..=count).map(|n| n as f64 * step).collect()
    }
}

fn tick_text(value: f64) -> String {
    if value == 0.0 {
        "0".into()
    } else if (0.02..100_000.0).contains(&value) {
        let text = format!("{value:.4}");
        text.trim_end_matches('0').trim_end_matches('.').into()
    } else {
        format!("{value:.0e}")
    }
}

impl Chart {
    /// The chart as an SVG document.
    pub(super) fn render(&self) -> String {
        let rows = self.panels.len().div_ceil(self.columns.max(1));
        let cell = (PANEL.0 + MARGIN.0 + 14.0, PANEL.1 + MARGIN.1 + 36.0);
        let width = cell.0 * self.columns as f64 + 10.0;
        let height = HEAD + cell.1 * rows as f64 + 10.0;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        text(&mut svg, (12.0, 22.0), "start", 15, &self.title);
        self.legend(&mut svg);
        let points = || {
            self.panels
                .iter()
                .flat_map(|p| &p.lines)
                .flat_map(|l| &l.points)
        };
        let x = Axis::around(points().map(|p| p.0), true);
        let y = Axis::around(points().map(|p| p.1), self.log_y);
        for (number, panel) in self.panels.iter().enumerate() {
            let (column, row) = (number % self.columns, number / self.columns);
            let left = MARGIN.0 + cell.0 * column as f64;
            let top = HEAD + 24.0 + cell.1 * row as f64;
            self.panel(&mut svg, panel, (left, top), &x, &y);
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn legend(&self, svg: &mut String) {
        let mut x = 14.0;
        for (number, name) in self.names.iter().enumerate() {
            let stroke = stroke(number);
            let _ = writeln!(
                svg,
                "<line x1=\"{x:.1}\" y1=\"42\" x2=\"{:.1}\" y2=\"42\" {stroke}/>",
                x + 26.0
            );
            text(svg, (x + 32.0, 46.0), "start", 11, name);
            x += 48.0 + name.len() as f64 * 6.4;
        }
    }

    fn panel(&self, svg: &mut String, panel: &Panel, at: (f64, f64), x: &Axis, y: &Axis) {
        let (left, top) = at;
        let bottom = top + PANEL.1;
        text(
            svg,
            (left + PANEL.0 / 2.0, top - 6.0),
            "middle",
            12,
            &panel.title,
        );
        for tick in x.ticks() {
            let place = left + x.place(tick) * PANEL.0;
            grid(svg, (place, top), (place, bottom));
            text(svg, (place, bottom + 14.0), "middle", 10, &tick_text(tick));
        }
        for tick in y.ticks() {
            let place = bottom - y.place(tick) * PANEL.1;
            grid(svg, (left, place), (left + PANEL.0, place));
            text(svg, (left - 5.0, place + 4.0), "end", 10, &tick_text(tick));
        }
        text(
            svg,
            (left + PANEL.0 / 2.0, bottom + 28.0),
            "middle",
            10,
            &self.x_label,
        );
        let middle = top + PANEL.1 / 2.0;
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{middle:.1}\" text-anchor=\"middle\" font-size=\"10\" transform=\"rotate(-90 {:.1} {middle:.1})\">{}</text>",
            left - 44.0,
            left - 44.0,
            escape(&self.y_label)
        );
        for line in &panel.lines {
            let path: Vec<_> = line
                .points
                .iter()
                .filter(|p| p.1.is_finite() && (p.1 > 0.0 || !self.log_y))
                .map(|p| {
                    (
                        left + x.place(p.0) * PANEL.0,
                        bottom - y.place(p.1) * PANEL.1,
                    )
                })
                .collect();
            polyline(svg, &path, line.name);
        }
    }
}

fn stroke(number: usize) -> String {
    let (colour, dash) = (COLOURS[number % 6], DASHES[number % 6]);
    format!("stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dash}\" fill=\"none\"")
}

fn polyline(svg: &mut String, path: &[(f64, f64)], name: usize) {
    let points: Vec<_> = path.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let (points, stroke) = (points.join(" "), stroke(name));
    let _ = writeln!(svg, "<polyline points=\"{points}\" {stroke}/>");
    for (x, y) in path {
        let colour = COLOURS[name % 6];
        let _ = writeln!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.4\" fill=\"{colour}\"/>"
        );
    }
}

fn grid(svg: &mut String, from: (f64, f64), to: (f64, f64)) {
    let _ = writeln!(
        svg,
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"#dddddd\"/>",
        from.0, from.1, to.0, to.1
    );
}

fn text(svg: &mut String, at: (f64, f64), anchor: &str, size: u32, text: &str) {
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\">{}</text>",
        at.0,
        at.1,
        escape(text)
    );
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_span_their_values_and_have_round_ticks() {
        let axis = Axis::around([3e-6, 0.02, 0.0, f64::NAN].into_iter(), true);
        assert!((axis.place(1e-6)).abs() < 1e-9 && (axis.place(0.1) - 1.0).abs() < 1e-9);
        assert_eq!(axis.ticks().len(), 6);
        let linear = Axis::around([0.3, 24.0].into_iter(), false);
        assert_eq!(linear.ticks(), [0.0, 10.0, 20.0]);
        assert_eq!(tick_text(0.25), "0.25");
        assert_eq!(tick_text(1e-6), "1e-6");
        assert_eq!(tick_text(1e-3), "1e-3");
    }

    #[test]
    fn a_chart_is_well_formed_and_leaves_out_what_is_no_number() {
        let chart = Chart {
            title: "a < b".into(),
            x_label: "x".into(),
            y_label: "y".into(),
            names: vec!["one".into()],
            columns: 1,
            log_y: true,
            panels: vec![Panel {
                title: "p".into(),
                lines: vec![Line {
                    name: 0,
                    points: vec![(1e-3, 1.0), (1e-2, f64::NAN), (1e-1, 10.0)],
                }],
            }],
        };
        let svg = chart.render();
        assert!(svg.contains("a &lt; b") && !svg.contains("NaN"));
        assert_eq!(svg.matches("<circle").count(), 2);
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
    }
}

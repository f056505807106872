"""How the page looks: on a wide screen, a phone and A4 paper, the same in light and dark."""

from __future__ import annotations

# No character of this text needs escaping in HTML or XML: no angle bracket, no ampersand.
STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
html { background: #fff; -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body {
  margin: 0; background: #fff; color: #1b1e23;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial,
    "Liberation Sans", sans-serif;
}
main { max-width: 54rem; margin: 0 auto; padding: 1.5rem 1.25rem 4rem; overflow-wrap: anywhere; }
h1 { margin: 0 0 .75rem; font-size: 1rem; font-weight: 600; color: #4a4f57; }
h2 {
  display: flex; margin: 2.75rem 0 .75rem; padding-bottom: .3rem; border-bottom: 1px solid #c9ced6;
  font-size: 1.3rem; line-height: 1.3;
}
h2 .number { flex: none; width: 1.6em; color: #5d636d; font-weight: 400; }
h3 { margin: 0 0 .5rem; font-size: 1rem; line-height: 1.35; }
p { margin: 0 0 .75rem; max-width: 44rem; }
ul { margin: 0 0 .75rem; padding-left: 1.2rem; max-width: 44rem; }
li { margin-bottom: .35rem; }
.said { font-weight: 600; }
.note { color: #4a4f57; font-size: .9375rem; }
code { font: .875em/1.45 ui-monospace, "Liberation Mono", Menlo, Consolas, monospace; }

.band {
  display: grid; grid-template-columns: auto 1fr; gap: 0 1.1rem; align-items: start;
  padding: 1.1rem 1.25rem; border: 2px solid; border-left-width: 12px;
}
.band p { margin: 0; }
.band .sign { width: 2.6rem; height: 2.6rem; margin-top: .1rem; }
.band .word { font-size: .875rem; font-weight: 700; letter-spacing: .06em;
  text-transform: uppercase; }
.band .sentence { margin: .1rem 0 .4rem; font-size: 1.4rem; line-height: 1.3; color: #1b1e23; }
.band .remark { font-size: .9375rem; color: #3a3f47; }
.band.owned { border-color: #00568a; background: #e8f2f9; color: #00568a; }
.band.not-shown { border-color: #4a4f57; border-style: double; border-width: 6px 6px 6px 12px;
  background: #f2f3f5; color: #3a3f47; }
.band.could-not-measure { border-color: #8a5a00; border-style: dashed; background: #fdf4e0;
  color: #6e4700; }

dl { margin: 0 0 .75rem; }
dl div { display: grid; grid-template-columns: 12rem 1fr; gap: 0 1rem; padding: .35rem 0;
  border-bottom: 1px solid #e6e9ed; }
dt { color: #4a4f57; }
dd { margin: 0; min-width: 0; }

table { width: 100%; border-collapse: collapse; margin: 0 0 .75rem; }
caption { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
thead th { border-bottom: 2px solid #8a9099; color: #4a4f57; font-size: .875rem; }
th, td { padding: .55rem 0 .55rem .75rem; text-align: left; vertical-align: top;
  font-weight: 400; }
th:first-child { padding-left: 0; }
tbody tr { border-bottom: 1px solid #e6e9ed; }
.figures { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
thead .figures { vertical-align: bottom; }
th span { display: block; }
.label { font-weight: 600; }
.meaning { max-width: 36rem; font-size: .9375rem; line-height: 1.4; color: #3a3f47; }
.direction { font-size: .875rem; color: #4a4f57; }
.short thead .figures { white-space: normal; overflow-wrap: normal; max-width: 8.5rem; }
.short th, .short td { padding-top: .35rem; padding-bottom: .35rem; font-size: .9375rem; }
.short thead th { vertical-align: bottom; }
.wrapped { white-space: normal; }

.rates { margin-bottom: 1.25rem; }
.side-by-side { display: grid; gap: 1.75rem 2rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); margin: 1rem 0; }
.alone { margin-top: 1.5rem; }
.leading { margin-bottom: 1.5rem; padding-bottom: .75rem; border-bottom: 1px solid #c9ced6; }
figure { margin: 0; min-width: 0; max-width: 30rem; }
figcaption { margin-top: .4rem; font-size: .9375rem; line-height: 1.4; color: #3a3f47; }
.chart { display: block; width: 100%; height: auto; overflow: visible; }
.chart text { font-size: 12px; fill: #2b2f36; font-family: inherit; }
.chart .strong { font-weight: 700; paint-order: stroke; stroke: #fff; stroke-width: 4px;
  stroke-linejoin: round; }
.chart .quiet { fill: #5d636d; }

.command { margin: 0 0 1rem; padding: .75rem 1rem; border: 1px solid #c9ced6;
  white-space: pre-wrap; overflow-wrap: anywhere; background: #f6f7f8; }
.controls { columns: 16rem auto; column-gap: 2rem; margin: 0; padding-left: 2.2rem;
  font-size: .9375rem; }
.controls li { break-inside: avoid; }

@media screen and (max-width: 36rem) {
  main { padding: 1rem 1rem 3rem; }
  h2 { margin-top: 2.25rem; font-size: 1.2rem; }
  dl div { grid-template-columns: 1fr; }
  .band { padding: .9rem; border-left-width: 8px; grid-template-columns: 1fr; gap: .5rem; }
  .band.not-shown { border-left-width: 8px; }
  .band .sentence { font-size: 1.2rem; }
  thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  table, tbody { display: block; }
  tbody tr { display: grid; grid-template-columns: 11.5rem 1fr; padding: .6rem 0; }
  tbody th { grid-column: 1 / -1; }
  tbody th, tbody td { padding: 0; }
  tbody td { margin-top: .3rem; font-size: .9375rem; }
  tbody td.figures { text-align: left; font-weight: 600; }
  .short tbody tr { grid-template-columns: 1fr; }
  .short tbody th, .short tbody td { margin: 0; padding: .05rem 0; white-space: normal; }
  tbody td::before { content: attr(data-column) " "; font-weight: 400; color: #4a4f57; }
}

@page { size: A4; margin: 16mm 15mm; }
@media print {
  body { font-size: 10.5pt; }
  main { max-width: none; padding: 0; }
  h2 { margin-top: 1.6rem; }
  h2, h3, thead { break-after: avoid; }
  figure, tr, dl div, .band, .command, li { break-inside: avoid; }
  thead { display: table-header-group; }
  .band, .command, .chart { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  .side-by-side { grid-template-columns: 1fr 1fr; gap: 1.2rem 1.5rem; }
}
"""

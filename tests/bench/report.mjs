// From the figures of a run: the tables of RESULTS.md (between its marks) and results.svg.
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const number = value => value === undefined ? '' : value >= 1000 ? Math.round(value).toLocaleString('en') : value >= 10 ? value.toFixed(0) : value.toFixed(2);
const table = (heads, rows) => [`| ${heads.join(' | ')} |`, `|${heads.map((_, i) => i ? '---:' : '---').join('|')}|`,
  ...rows.map(row => `| ${row.join(' | ')} |`)].join('\n') + '\n';
const groups = rows => [...new Set(rows.map(row => `${row.what}, ${row.clients} client${row.clients > 1 ? 's' : ''}`))];
const inGroup = (rows, group) => rows.filter(row => `${row.what}, ${row.clients} client${row.clients > 1 ? 's' : ''}` === group);

// The first contender of each group is what the others are compared with.
function competition(rows) {
  return groups(rows).map(group => {
    const list = inGroup(rows, group), base = list[0];
    return `**${group}**\n\n` + table(['', 'calls/s', 'ratio', 'p50 µs', 'added µs', 'p99 µs', 'p99.9 µs', 'CPU µs a call', 'MB/s', 'peak MB'],
      list.map(row => [row.contender, number(row.per_second), (row.per_second / base.per_second).toFixed(2), number(row.p50_us),
        row === base ? '' : number(row.p50_us - base.p50_us), number(row.p99_us), number(row.p999_us), number(row.cpu_us),
        number(row.bytes / row.all_calls * row.per_second / 1e6), number(row.peak_kb === undefined ? undefined : row.peak_kb / 1024)]));
  }).join('\n');
}

function plot(rows) {
  const bars = groups(rows).flatMap(group => [{ title: group }, ...inGroup(rows, group).map(row =>
    ({ name: row.contender, value: row.per_second, part: row.per_second / Math.max(...inGroup(rows, group).map(other => other.per_second)) }))]);
  const line = 18, text = value => value.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
  const body = bars.map((bar, i) => bar.title ? `<text x="8" y="${i * line + 14}" font-weight="bold">${text(bar.title)}, calls a second</text>`
    : `<text x="248" y="${i * line + 13}" text-anchor="end">${text(bar.name)}</text><rect x="256" y="${i * line + 3}" width="${Math.max(1, bar.part * 380).toFixed(0)}" height="12" ` +
      `fill="${bar.name.startsWith('mcp-valet') ? '#2a6' : '#99a'}"/><text x="${262 + bar.part * 380}" y="${i * line + 13}">${number(bar.value)}</text>`);
  const height = bars.length * line + 8;
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 ${height}" font-family="sans-serif" font-size="11">
<rect width="720" height="${height}" fill="#fff"/>\n${body.join('\n')}\n</svg>\n`;
}

const begin = '<!-- figures: made by run.mjs -->', end = '<!-- end of figures -->';

export function report(out, machine, results) {
  const of = name => results.filter(row => row.scenario === name);
  const parts = [`Machine: ${machine.processor}, ${machine.cores} cores, ${machine.memory_gb} GB, Linux ${machine.kernel}, Node.js ${machine.node}, ${machine.nginx}. ` +
    `The contender on core 0; load and legacy server on core 1. Medians of ${machine.rounds} rounds of ${machine.seconds} s. ` +
    `Load average before the run: ${machine.load.toFixed(2)}; above 0.5 others took part, and only ratios within a table say anything.\n\n![calls a second](results.svg)\n`];
  if (of('plain').length) parts.push('### 1. Plain calls\n\n' + competition(of('plain')));
  if (of('rounds').length) parts.push('### 2. Round trips\n\n' + competition(of('rounds')));
  if (of('sizes').length) parts.push('### 3. Large results\n\n' + competition(of('sizes')));
  if (of('parked').length) parts.push('### 4. Parked calls\n\n' + table(['', 'resident MB', 'bytes a call', 'CPU % while they wait', 'calls/s beside them', 'p50 µs', 'p99 µs'],
    of('parked').map(row => [`${row.contender}, ${row.what}`, number(row.rss_kb / 1024), number(row.bytes_each), number(row.waiting_cpu_percent), number(row.per_second), number(row.p50_us), number(row.p99_us)])));
  for (const row of of('start')) parts.push('### 5. Start and size\n\n' + table(['', ''], [['start to first answer (the child included)', `${number(row.first_answer_ms)} ms`],
    ['binary, with symbols', `${number(row.binary_bytes / 1024)} KB`], ['resident when idle', `${number(row.idle_rss_kb / 1024)} MB`]]));
  const path = join(out, 'RESULTS.md');
  const text = existsSync(path) ? readFileSync(path, 'utf8') : `# Benchmark\n\n${begin}\n${end}\n`;
  writeFileSync(path, text.slice(0, text.indexOf(begin) + begin.length) + '\n\n' + parts.join('\n') + '\n' + text.slice(text.indexOf(end)));
  writeFileSync(join(out, 'results.svg'), plot([...of('plain'), ...of('rounds')]));
}

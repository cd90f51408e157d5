// RESULTS.md from the records of a sweep.

const cell = text => String(text ?? '–').replaceAll('|', '\\|').replaceAll('\n', ' ');
const failed = text => text?.startsWith('failed');

// Steps that went otherwise behind mcp-valet than directly. A step that failed in both ways is the server's own.
export function faults({ direct, valet, rounds = [] }) {
  const list = [];
  for (const [step, text] of Object.entries(valet.steps)) {
    if (step === 'subscriptions/listen' ? text !== 'ok' && text !== '–' : failed(text)) {
      list.push({ step, text, ours: !failed(direct.steps[step]), direct: direct.steps[step] });
    }
  }
  for (const key of Object.keys(direct.names)) {
    if (valet.names[key] !== undefined && valet.names[key] !== direct.names[key]) list.push({ step: `${key} differ`, text: `${valet.counts[key]} behind, ${direct.counts[key]} directly`, ours: true });
  }
  for (const { tool, kind, valet: behind, direct: directly } of rounds) {
    const how = `${tool} ${kind}`;
    if (behind.failed) list.push({ step: how, text: behind.failed, ours: !directly?.failed, direct: directly?.failed });
    else if (directly && !directly.failed && !behind.gaveUp && behind.text !== directly.text) list.push({ step: how, text: `${behind.text} / directly ${directly.text}`, ours: true });
    else if (!behind.asked.length) list.push({ step: how, text: 'nothing was asked', ours: directly ? directly.asked.length > 0 : true });
  }
  return list;
}

function row(record) {
  const { name, version, sdk, revision, valet, direct, rounds = [] } = record;
  const { counts, steps } = valet;
  const asked = [...new Set([...valet.asked, ...direct.asked.map(what => valet.asked.includes(what) ? what : `${what} (outside calls)`),
    ...rounds.map(one => `${one.valet.asked.join(', ')} in ${one.tool}`)])];
  const call = Object.keys(steps).find(step => step.startsWith('tools/call'));
  const found = faults(record);
  const rest = found.map(fault => `${fault.step}: ${fault.text}${fault.ours ? ` (directly: ${fault.direct ?? 'ok'})` : ' (the same directly)'}${record.note ? `. ${record.note}` : ''}`);
  const verdict = found.length ? (found.some(fault => fault.ours && !record.note) ? 'differs' : 'server') : 'ok';
  const number = key => counts[key] ?? '–';
  return [name, version, sdk, revision, `${number('tools')}/${number('prompts')}/${number('resources')}/${number('resourceTemplates')}`,
    call ? `${call.slice(11)}${steps[call] === 'ok' ? '' : ' → isError'}`.replace(' → isError', failed(steps[call]) ? ' → failed' : ' → isError') : '–',
    steps['subscriptions/listen'], asked.join('; ') || '–', verdict, rest.join('; ') || '–'];
}

export function report(records, wanted) {
  const run = records.filter(record => !record.skipped).sort((a, b) => a.name.localeCompare(b.name));
  const skipped = records.filter(record => record.skipped);
  const rows = run.map(row);
  const count = verdict => rows.filter(cells => cells[8] === verdict).length;
  const rounds = run.flatMap(record => (record.rounds ?? []).map(one => [record.name, one.tool, one.kind, one.valet.asked.join(', '), one.valet.failed ?? one.valet.text]));
  const table = (head, lines) => [head, head.map(() => '---'), ...lines].map(cells => `| ${cells.map(cell).join(' | ')} |`).join('\n');
  const text = `# Public servers behind mcp-valet

Written by run.mjs; its head says how to repeat it. ${wanted} servers in the list, ${run.length} run: ${count('ok')} without a fault,
${count('server')} with faults that are the server's own, ${count('differs')} that differ from the server asked directly. Each is taken through the official
client (2026-07-28) behind mcp-valet, and through the same steps by the client's legacy mode without it.

The revision is the one that mcp-valet negotiated with the server. Numbers are tools/prompts/resources/templates.
Besides the call, the first prompt whose name does not speak of acting is got and the first resource is read. \`isError\` is the server's own word about a call made of sample arguments,
without keys.

${table(['server', 'version', 'SDK', 'revision', 'numbers', 'call', 'listen', 'asked', 'outcome', 'what failed'], rows)}

## Questions, answered in three ways

${table(['server', 'tool', 'the client would', 'asked', 'outcome'], rounds)}
${skipped.length ? `\n## Not run\n\n${table(['server', 'version', 'why'], skipped.map(record => [record.name, record.version, record.skipped]))}\n` : ''}`;
  return { text, ours: count('differs') };
}

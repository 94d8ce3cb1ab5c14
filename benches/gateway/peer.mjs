// Twenty compiled rules over one context with @marcbachmann/cel-js: prints microseconds for all twenty.
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const require = createRequire(`${process.env.CEL_JS ?? process.cwd()}/`)
const { parse } = await import(pathToFileURL(require.resolve('@marcbachmann/cel-js')))
const read = (name) => JSON.parse(readFileSync(new URL(name, import.meta.url), 'utf8'))
const value = (v) => {
  if (Array.isArray(v)) return v.map(value)
  if (v && typeof v === 'object') return Object.fromEntries(Object.entries(v).map(([k, x]) => [k, value(x)]))
  return Number.isInteger(v) ? BigInt(v) : v
}
const bound = {}
for (const [name, v] of Object.entries(read('context.json'))) {
  const [group, member] = name.split('.')
  const made = name === 'now' ? new Date(v) : value(v)
  if (member) (bound[group] ??= {})[member] = made
  else bound[name] = made
}
const rules = read('rules.json').map((rule) => parse(rule))
const judge = () => rules.map((rule) => rule(bound))
const rounds = Number(process.argv[2] ?? 20000)
console.error(JSON.stringify(judge()))
for (let n = 0; n < rounds / 10; n++) judge()
const start = process.hrtime.bigint()
for (let n = 0; n < rounds; n++) judge()
console.log((Number(process.hrtime.bigint() - start) / 1000 / rounds).toFixed(1))

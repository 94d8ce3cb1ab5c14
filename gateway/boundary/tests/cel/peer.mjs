// Evaluates expressions with @marcbachmann/cel-js: JSON lines {e, full} in, {v} out. See generate.py.
import { createInterface } from 'node:readline'
import { readFileSync } from 'node:fs'
import { evaluate } from '@marcbachmann/cel-js'

const contexts = JSON.parse(readFileSync(process.argv[2], 'utf8'))
const quote = (s) => JSON.stringify(s).replace(/\u2028|\u2029/g, (c) => `\\u${c.charCodeAt(0).toString(16)}`)
const value = (v) => {
  if (Array.isArray(v)) return v.map((x) => value(x))
  if (v && typeof v === 'object') return Object.fromEntries(Object.entries(v).map(([k, x]) => [k, value(x)]))
  return typeof v === 'number' && Number.isInteger(v) ? BigInt(v) : v
}
const bind = (flat) => {
  const out = {}
  for (const [name, v] of Object.entries(flat)) {
    const [group, member] = name.split('.')
    const bound = name === 'now' ? new Date(v) : value(v)
    if (member) (out[group] ??= {})[member] = bound
    else out[name] = bound
  }
  return out
}
const bound = contexts.map(bind)
const double = (n) => (Number.isInteger(n) && Math.abs(n) < 1e21 ? `${n}.0` : `${n}`)
const show = (v) => {
  if (v === null || v === undefined) return 'null'
  if (typeof v === 'boolean') return String(v)
  if (typeof v === 'bigint') return String(v)
  if (typeof v === 'number') return double(v)
  if (typeof v === 'string') return quote(v)
  if (v instanceof Date) return `timestamp("${v.toISOString().replace('.000Z', 'Z')}")`
  if (v instanceof Uint8Array) return `b"${[...v].map((b) => `\\x${b.toString(16).padStart(2, '0')}`).join('')}"`
  if (Array.isArray(v)) return `[${v.map(show).join(', ')}]`
  if (/^-?\d+$/.test(String(v))) return `${String(v)}u`
  if (v.constructor?.name?.includes('Duration')) {
    const nanos = BigInt(v.seconds) * 1000000000n + BigInt(v.nanos)
    const sign = nanos < 0n ? '-' : ''
    const size = nanos < 0n ? -nanos : nanos
    const rest = (size % 1000000000n).toString().padStart(9, '0').replace(/0+$/, '')
    return `duration("${sign}${size / 1000000000n}${rest ? `.${rest}` : ''}s")`
  }
  const entries = v instanceof Map ? [...v.entries()] : Object.entries(v)
  return `{${entries.map(([k, x]) => `${typeof k === 'string' ? quote(k) : show(k)}: ${show(x)}`).sort().join(', ')}}`
}
for await (const line of createInterface({ input: process.stdin })) {
  const { e, full } = JSON.parse(line)
  let v
  try {
    v = show(evaluate(e, bound[full ? 0 : 1]))
  } catch (error) {
    const missing = /found no matching overload|Function not found|no such function|unknown function|Unknown function|no matching overload/i.test(error.message)
    v = missing ? `unsupported: ${error.message.split('\n')[0]}` : `error: ${error.message.split('\n')[0]}`
  }
  console.log(JSON.stringify({ v }))
}

// Says what llhttp, the parser of Node, reads of the messages that come on standard
// input, with nothing lenient switched on. How they come and what is said of them
// stands in ../hyper/src/main.rs. The package undici has llhttp compiled.
import { readSync, writeSync } from 'node:fs'
import { createRequire } from 'node:module'

const module = new WebAssembly.Module(createRequire(import.meta.url)('undici/lib/llhttp/llhttp-wasm.js'))
const requests = 1, responses = 2

let said, message, head, trailing
const hex = (bytes) => 'x' + Buffer.from(bytes).toString('hex')
const bytes = (at, length) => Buffer.from(new Uint8Array(wasm.memory.buffer, at, length))

const env = {
  wasm_on_message_begin() {
    message = { target: Buffer.alloc(0), fields: [], body: [] }
    trailing = false
    return 0
  },
  wasm_on_url(_, at, length) {
    message.target = Buffer.concat([message.target, bytes(at, length)])
    return 0
  },
  wasm_on_status: () => 0,
  wasm_on_header_field(_, at, length) {
    message.fields.push([trailing ? 't' : 'f', bytes(at, length), Buffer.alloc(0)])
    return 0
  },
  wasm_on_header_value(_, at, length) {
    const field = message.fields.at(-1)
    field[2] = Buffer.concat([field[2], bytes(at, length)])
    return 0
  },
  wasm_on_headers_complete() {
    trailing = true
    return head ? 1 : 0
  },
  wasm_on_body(_, at, length) {
    message.body.push(bytes(at, length))
    return 0
  },
  wasm_on_message_complete(parser) {
    const what = wasm.llhttp_get_type(parser) === requests ? text(wasm.llhttp_method_name(wasm.llhttp_get_method(parser)))
      : String(wasm.llhttp_get_status_code(parser))
    said += `m ${hex(what)} ${hex(message.target)}\n`
    for (const [letter, name, value] of message.fields) said += `${letter} ${hex(name)} ${hex(value)}\n`
    said += `b ${hex(Buffer.concat(message.body))}\n`
    return 0
  },
}
const wasm = new WebAssembly.Instance(module, { env }).exports
wasm._initialize?.()

function text(at) {
  const memory = new Uint8Array(wasm.memory.buffer)
  return Buffer.from(memory.subarray(at, memory.indexOf(0, at))).toString('latin1')
}

// read says what is read of one message, and what comes behind it.
function read(kind, raw) {
  said = ''
  head = kind === 'H'
  const parser = wasm.llhttp_alloc(kind === 'Q' ? requests : responses)
  const at = wasm.malloc(raw.length + 1)
  new Uint8Array(wasm.memory.buffer, at, raw.length).set(raw)
  let error = wasm.llhttp_execute(parser, at, raw.length)
  if (error === 0) error = wasm.llhttp_finish(parser)
  if (error !== 0) said += `e ${hex(text(wasm.llhttp_errno_name(error)) + ' ' + text(wasm.llhttp_get_error_reason(parser)))}\n`
  wasm.free(at)
  wasm.llhttp_free(parser)
  return said
}

function readFull(length) {
  const buffer = Buffer.alloc(length)
  for (let have = 0; have < length;) {
    const n = readSync(0, buffer, have, length - have, null)
    if (n === 0) return null
    have += n
  }
  return buffer
}

for (;;) {
  const start = readFull(5)
  if (start === null) break
  const answer = Buffer.from(read(String.fromCharCode(start[0]), readFull(start.readUInt32BE(1))))
  const length = Buffer.alloc(4)
  length.writeUInt32BE(answer.length)
  for (let rest = Buffer.concat([length, answer]); rest.length > 0;) rest = rest.subarray(writeSync(1, rest))
}

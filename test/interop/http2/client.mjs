// Asks a Weir over HTTP/2 with undici; see http2_clients_test.go for what each answer must be.
import { readFileSync } from 'node:fs'
import { Pool } from 'undici'

const [base, ca, size] = process.argv.slice(2)
const pool = new Pool(base, { allowH2: true, connections: 1, pipelining: 100, connect: { ca: readFileSync(ca), ALPNProtocols: ['h2'] } })
const ask = (method, path, body) => pool.request({ method, path, body })
const said = {}

const many = await Promise.all(Array.from({ length: 100 }, async () => {
  const { statusCode, body } = await ask('GET', '/free')
  return { statusCode, text: await body.text() }
}))
said.many = `${many.filter((r) => r.statusCode === 200).length} ${JSON.parse(many[0].text).headers.Via?.[0].split(' ')[0] ?? ''}`
let r = await ask('POST', '/free', Buffer.alloc(Number(size)))
said.upload = `${r.statusCode} ${(await r.body.json()).length}`
r = await ask('POST', '/limited', Buffer.alloc(Number(size)))
said.early = `${r.statusCode} ${(await r.body.json()).status}`
r = await ask('GET', '/big')
said.download = `${r.statusCode} ${(await r.body.arrayBuffer()).byteLength}`
for (let i = 0; i < 50; i++) {
  const { body } = await ask('GET', '/big')
  for await (const _ of body) break // ends the stream
}
r = await ask('GET', '/free')
await r.body.dump()
said['after aborts'] = `${r.statusCode}`
console.log(JSON.stringify(said))
await pool.destroy()

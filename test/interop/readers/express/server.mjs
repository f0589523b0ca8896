// Express as it is usually set up: qs for queries and forms, routes that forgive
// case and a closing slash, and multer or formidable for multipart forms.
//
//   node server.mjs PORT multer|formidable
import cookieParser from 'cookie-parser'
import express from 'express'
import formidable from 'formidable'
import multer from 'multer'

const [port, forms] = process.argv.slice(2)
const app = express()
app.use(cookieParser())
app.use(express.json())
app.use(express.urlencoded({ extended: true }))
if (forms === 'multer') {
  app.use(multer().any())
} else {
  app.use((req, res, next) => {
    if (!req.is('multipart/form-data')) return next()
    formidable().parse(req, (err, fields) => {
      req.body = fields
      next(err)
    })
  })
}

// texts are all that a program could take a value for.
function texts(value) {
  if (value === undefined || value === null) return []
  if (typeof value === 'object') return Object.values(value).flatMap(texts)
  return [String(value)]
}

function read(route) {
  return (req, res) => {
    const body = req.body ?? {}
    const answer = {
      route,
      method: [req.method],
      host: texts(req.hostname),
      path: texts(req.params.phone),
      header: texts(req.get('X-Phone')),
      query: texts(req.query.phone_no),
      form: texts(body.phone_no),
      json: texts(body.phone_no),
      cookie: [...texts(req.cookies.phone_no), ...texts(req.signedCookies.phone_no)],
      told: texts(req.get('X-Phone-E164')),
      counted: texts(req.get('X-Counted')),
      authorization: texts(req.get('Authorization')),
      mark: texts(req.get('Idempotency-Key')),
      cost: texts(req.query.cost_no),
      forwarded: ['For', 'Host', 'Proto'].flatMap((name) => texts(req.get('X-Forwarded-' + name))),
    }
    res.set('X-Read', Buffer.from(JSON.stringify(answer)).toString('base64'))
    res.send('read\n')
  }
}

for (const route of ['header', 'form', 'json', 'cookie', 'told', 'mark', 'pay']) {
  app.post('/v1/' + route, read(route))
}
for (const route of ['query', 'token', 'cost']) app.get('/v1/' + route, read(route))
app.get('/v1/users/:phone', read('users'))
app.all('/v1/any', read('any'))
app.use(read('other'))
app.use((err, req, res, next) => res.status(err.status ?? 400).send('not read\n'))
// formidable throws where nobody catches when a part's encoding is none.
process.on('uncaughtException', () => {})
app.listen(Number(port), '127.0.0.1')

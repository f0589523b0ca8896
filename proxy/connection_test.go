package proxy

import "testing"

const stripping = `
keys:
  phone: {from: "header:X-Phone", set_header: X-Phone-Clean}
  number: {from: "json:/phone", on_missing: skip}
  who: {from: "jwt:sub", on_missing: skip, on_invalid: skip}
jwt: {secret: 0123456789abcdef0123456789abcdef}
lists: {friends: {key: {from: "header:X-Friend", on_missing: skip}, values: [a], action: bypass}}
routes:
  - name: a
    match: {path: /a, headers: {X-App: "*"}}
    upstream: echo
    lists: [friends]
    rewrite: {headers: {set: {X-From: weir}}}
    idempotency: {}
    limits:
      - {name: phone, key: phone, rate: 99/1h, cost: "header:X-Cost", max_cost: 5}
      - {name: number, key: number, rate: 99/1h}
      - {name: who, key: who, rate: 99/1h}
      - {name: cookie, key: {from: "cookie:sid", on_missing: skip}, rate: 99/1h}
      - {name: fan, key: client_ip, distinct: {from: "header:X-Fan", on_missing: skip}, rate: 99/1h}
  - {name: b, match: {path: /b}, upstream: echo}
`

// A client that says a field is this connection's would have it counted and hidden
// from the upstream.
func TestConnection_NamesNoFieldThatIsRead(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		f := over.opened(t, stripping)
		ask := func(path, connection string) string {
			return "GET " + path + " HTTP/1.1\r\nHost: a\r\nX-App: 1\r\nX-Phone: 1\r\nConnection: " + connection + "\r\n\r\n"
		}
		for _, name := range []string{
			"X-Phone", "x-phone", "X_Phone", "close, X-Phone", "keep-alive,\tx-phone ", "X-Phone\r\nConnection: close", "X-Cost", "X-Friend", "Idempotency-Key", "X-App",
			"Content-Type", "Authorization", "Cookie", "X-Fan", "X.Phone",
		} {
			f.dial(ask("/a", name)).WantStatus(400)
		}
		for _, name := range []string{"keep-alive", "X-Other", "Upgrade", "", "TE, X-Own", "X-From", "X-Phone-Clean", "X-Real-IP", "X-Request-Id", "Forwarded", "Via", "close, X-Forwarded-For", "X_Forwarded_For"} {
			f.dial(ask("/a", name)).WantStatus(200)
		}
		f.dial(ask("/b", "X-Phone, Cookie")).WantStatus(200) // nothing is read from them there
	})
}

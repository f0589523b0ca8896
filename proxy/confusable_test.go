package proxy

import (
	"net/http"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/test/rounds"
)

// TestConfusable_NamesAreRefused: what some server takes for a key under another
// name is never counted by its own, and never passes as if there were no key.
func TestConfusable_NamesAreRefused(t *testing.T) {
	w := newProxy(t, `
keys:
  header: {from: "header:X-Phone", on_missing: skip, on_invalid: skip}
  query: {from: "query:user_id", on_missing: skip, on_invalid: skip}
  filter: {from: "query:filter[phone]", on_missing: skip}
routes:
  - {name: h, match: {path: /h}, upstream: echo, limits: [{key: header, rate: 1/1h}]}
  - {name: q, match: {path: /q}, upstream: echo, limits: [{key: query, rate: 1/1h}]}
  - {name: f, match: {path: /f}, upstream: echo, limits: [{key: filter, rate: 1/1h}]}
  - {name: c, match: {path: /c}, upstream: echo, limits: [{key: global, rate: 99/1h, cost: "header:X-Cost", max_cost: 9}]}
  - {name: n, match: {path: /n}, upstream: echo, limits: [{key: global, rate: 99/1h, cost: "query:n", max_cost: 9}]}
`)
	for _, name := range []string{"X_Phone", "x_phone", "X.Phone", "X-Ph~one", "X-_Phone", "X+Phone", "X_PHONE"} {
		want := 400
		if name == "X-Ph~one" || name == "X-_Phone" { // X_PH_ONE, X__PHONE
			want = 200
		}
		for _, value := range []string{"1", "2", "3"} {
			w.sends(want, "GET", "/h", name+": "+value)
		}
	}
	w.sends(200, "GET", "/h", "X-Phone: 1")
	w.sends(429, "GET", "/h", "X-Phone: 1", "X_Other: 1")
	w.sends(400, "GET", "/h", "X-Phone: 2", "X_Phone: 1")
	for _, name := range []string{
		"User_ID", "user.id", "user+id", "user%20id", "user[id", "user%5Bid", "+user_id", "%20user.id", "user_id[]", "user_id[x]", "[user_id]", "[user.id][]", "user_id]",
		"user_id%00", "user_id%00x", "%00user_id", "user_id+", "user%255fid", "!user_id", "user_i%E2%80%8Bd", "user_id%EF%BB%BF", "u%C5%BFer_id", "user_id[]x", "user%20id[0]",
	} {
		w.sends(400, "GET", "/q?"+name+"=1")
		w.sends(400, "GET", "/q?user_id=2&"+name+"=1")
	}
	for _, query := range []string{"", "?user=1", "?user-id=1", "?userid=1", "?user_id2=1", "?x[user_id]=1", "?user_id_=1", "?_user_id=1", "?user=1&id[]=2"} {
		w.sendsAll(times(2, 200), "GET", "/q"+query)
	}
	w.sends(200, "GET", "/q?%75ser_id=1")
	w.sends(429, "GET", "/q?user_id=1")
	for _, query := range []string{"filter=1", "filter[phone][]=1", "filter[phone", "filter_phone[]=1&filter[phone=1", "filter.phone[]&filter[phone.]&filter[+phone+]=1", "[filter][phone]=1", "filter[phone]x=1"} {
		w.sends(400, "GET", "/f?"+query)
	}
	w.sends(200, "GET", "/f?filter[phone]=1&filter[name]=2&filters[phone]=3")
	w.sends(429, "GET", "/f?filter%5Bphone%5D=1")
	w.sends(400, "GET", "/c", "X_Cost: 1")
	w.sends(400, "GET", "/c", "X-Cost: 1", "X.Cost: 9")
	w.sends(200, "GET", "/c", "X-Cost: 1")
	w.sends(400, "GET", "/n?n[]=9")
	w.sends(400, "GET", "/n?n=1&N=9")
	w.sends(400, "GET", "/n?n=07") // 7 and, to some, octal
	w.sends(200, "GET", "/n?n=7")
}

// TestConfusable_OurOwnFields: nobody says under another name what Weir says to
// upstreams, or what it believes itself.
func TestConfusable_OurOwnFields(t *testing.T) {
	w := newProxy(t, `
client_ip: {trusted_proxies: [192.0.2.1], header: X-Client}
keys: {phone: {from: "header:X-Phone", set_header: X-Phone-E164, on_missing: skip}}
routes:
  - {name: send, match: {path: /send}, upstream: echo, limits: [{key: phone, rate: 1/1h}]}
  - {name: beta, match: {path: /a, headers: {X-Stage: beta}}, respond: {body: beta}}
  - {name: any, match: {path: /a, headers: {X-Kind: "*"}}, respond: {body: any}}
  - {name: all, match: {path: /a}, respond: {body: all}}
`)
	for _, name := range []string{
		"X_Forwarded_For", "X-Forwarded_For", "X.Forwarded.For", "X_Forwarded-Proto", "X_Forwarded_Anything", "X_Real_Ip", "X-Request_Id", "X_Client", "X_Phone_E164", "X-Phone.E164",
		"Content_Type", "Content_Length", "Transfer_Encoding", "Content_Encoding", "X_Stage", "X.Kind",
	} {
		for _, path := range []string{"/send", "/a"} {
			w.sends(400, "GET", path, name+": 1")
		}
	}
	w.sends(400, "GET", "/a", "X-Stage: beta", "X-Stage: live")
	for line, want := range map[string]string{"X-Stage: beta": "beta", "X-Stage: live": "all", "X-Kind: 1": "any", "X_Other: 1": "all"} {
		if got := w.sends(200, "GET", "/a", line).Body.String(); got != want {
			t.Errorf("%s went to %s; want %s", line, got, want)
		}
	}
	w.sends(200, "GET", "/a", "X-Kind: 1", "X-Kind: 2") // which decide nothing by what they say
}

// A field that the configuration itself gives an odd name is as safe.
func TestConfusable_OddNamesOfOurs(t *testing.T) {
	w := newProxy(t, limitYAML(`{key: "header:X_User", rate: 1/1h}`))
	w.sends(200, "GET", "/a", "X_User: a")
	w.sends(429, "GET", "/a", "x_user: a")
	for _, name := range []string{"X-User", "X.User", "x-user"} {
		w.sends(400, "GET", "/a", name+": b")
		w.sends(400, "GET", "/a", "X_User: b", name+": a")
	}
}

// What a limit in shadow mode would refuse for its name passes, and is told of.
func TestConfusable_ShadowRefusesNobody(t *testing.T) {
	w := newProxy(t, limitYAML(`{name: k, key: header:X-User, rate: 1/1h, mode: shadow}, {name: q, key: query:user, rate: 1/1h, mode: shadow}`))
	w.sends(200, "GET", "/a?user[]=1", "X_User: a")
}

// TestConfusable_Marks: an idempotency key counts under its own name alone.
func TestConfusable_Marks(t *testing.T) {
	w := newProxy(t, "routes:\n  - {name: a, match: {path: /a}, upstream: echo, idempotency: {header: Idempotency-Key}, limits: [{key: global, rate: 2/1h}]}\n")
	w.sends(200, "POST", "/a", "Idempotency-Key: 1")
	w.sendsAll(times(3, 200), "POST", "/a", "Idempotency-Key: 1")
	for _, line := range []string{"Idempotency_Key: 1", "Idempotency.Key: 1", "Idempotency-Key: \u00e9", "Idempotency-Key: a\tb"} {
		w.sends(400, "POST", "/a", line)
	}
	w.sends(400, "POST", "/a", "Idempotency-Key: 1", "Idempotency_Key: 2")
	w.sends(200, "POST", "/a", "Idempotency-Key: 2")
	w.sends(429, "POST", "/a", "Idempotency-Key: 3")
}

// TestConfusable_Texts: what two readers of a header, a query or a path find in it
// is one text, or nothing.
func TestConfusable_Texts(t *testing.T) {
	w := newProxy(t, `
keys:
  raw: {from: "header:X-User", on_invalid: skip}
  digits: {from: "header:X-User", normalize: digits, on_invalid: skip}
  query: {from: "query:user", on_invalid: skip}
  path: {from: "path:user", on_invalid: skip}
routes:
  - {name: raw, match: {path: /raw}, upstream: echo, limits: [{key: raw, rate: 1/1h}]}
  - {name: digits, match: {path: /digits}, upstream: echo, limits: [{key: digits, rate: 1/1h}]}
  - {name: query, match: {path: /query}, upstream: echo, limits: [{key: query, rate: 1/1h}]}
  - {name: path, match: {path: "/path/{user}"}, upstream: echo, limits: [{key: path, rate: 1/1h}]}
`)
	for _, value := range []string{"\u00e9", "a\tb", "a\u00a0", "\u200ba", "a\xff", "\u0661"} {
		w.sends(400, "GET", "/raw", "X-User: "+value)
	}
	for _, value := range []string{"1\u0661", "1\uff11", "1\u00b2", "1\u2160", "1\u09f4", "1\U0001d7d8"} {
		w.sends(400, "GET", "/digits", "X-User: "+value)
	}
	w.sends(200, "GET", "/digits", "X-User: 1\u00a02")
	w.sends(429, "GET", "/digits", "X-User: 12")
	for _, value := range []string{"+a", "a+", "a%09", "%0Aa", "a%00b", "a%0Ab", "a%C2%A0", "%E2%80%8Ba", "%FF", "a%EF%BB%BF", "+", "%7F"} {
		w.sends(400, "GET", "/query?user="+value)
		if value = strings.ReplaceAll(value, "+", "%20"); value != "%20" {
			w.sends(400, "GET", "/path/"+value)
		}
	}
	w.sends(200, "GET", "/query?user=a+b%C3%A9")
	w.sends(200, "GET", "/path/a%20b%C3%A9")
}

// A request without odd names is looked through without allocating.
func TestConfusable_CommonRequestCostsNothing(t *testing.T) {
	w := newProxy(t, limitYAML(`{key: "header:X-User", rate: 1/1h}`))
	g := w.current.Load()
	x := newExchange().(*exchange)
	x.in.header = http.Header{"X-User": {"a"}, "Accept": {"*/*"}, "User-Agent": {"x"}}
	x.route = g.routes[0]
	if got := rounds.Allocations(100, func() {
		if err := g.checkConfusable(x); err != nil {
			t.Fatal(err)
		}
	}); got > 0 {
		t.Errorf("%v allocations", got)
	}
}

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

package test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// spent is the one number, and the one client, whose only request of an hour has
// been made; unspent is nobody's yet.
const (
	spent   = "+8613800138000"
	unspent = "+8613900139000"
	spender = "203.0.113.7"
)

// guarded limits one number and one client in every place where it may stand. What
// no route takes reaches the same upstream unlimited, so that a path that only
// looks like another one is a way round.
const guarded = `
client_ip: {trusted_proxies: [127.0.0.1], ipv6_prefix: 64}
keys:
  json: {from: json:/phone, must_equal: header:X-Phone, normalize: {as: e164, default_region: CN}}
  form: {from: form:phone, normalize: {as: e164, default_region: CN}}
  header: {from: header:X-Phone, normalize: {as: e164, default_region: CN}}
  query: {from: query:phone, normalize: {as: e164, default_region: CN}}
  path: {from: path:phone, normalize: {as: e164, default_region: CN}}
  id: path:id
  user: {from: header:X-User, normalize: [trim, lower]}
  sid: cookie:sid
routes:
  - {name: json, match: {path: /v1/json}, upstream: URL, limits: [{key: json, rate: 1/1h}]}
  - {name: form, match: {path: /v1/form}, upstream: URL, limits: [{key: form, rate: 1/1h}]}
  - {name: header, match: {path: /v1/header}, upstream: URL, limits: [{key: header, rate: 1/1h}]}
  - {name: query, match: {path: /v1/query}, upstream: URL, limits: [{key: query, rate: 1/1h}]}
  - {name: call, match: {path: "/v1/call/{phone}"}, upstream: URL, limits: [{key: path, rate: 1/1h}]}
  - {name: account, match: {methods: [GET], path: "/v1/account/{id}"}, upstream: URL, limits: [{key: id, rate: 1/1h}]}
  - {name: order, match: {methods: [GET], path: "/v1/order/{id:[0-9]+}"}, upstream: URL, limits: [{key: id, rate: 1/1h}]}
  - {name: user, match: {path: /v1/user}, upstream: URL, limits: [{key: user, rate: 1/1h}]}
  - {name: cookie, match: {path: /v1/cookie}, upstream: URL, limits: [{key: sid, rate: 1/1h}]}
  - {name: ip, match: {path: /v1/ip}, upstream: URL, limits: [{key: client_ip, rate: 1/1h}]}
  - {name: rest, match: {path: /*}, upstream: URL}
`

// An attempt is one request on the wire that an upstream could take for the spent
// number's or client's.
type attempt struct {
	name  string
	bytes string
	want  []int // statuses, any of them; none of them is the upstream's
}

// rawRequest writes one with these header lines; a body gets its length, unless a line
// says how long it is.
func rawRequest(line, body string, header ...string) string {
	all := append([]string{line + " HTTP/1.1", "Host: x", "Connection: close"}, header...)
	framed := slices.ContainsFunc(header, func(h string) bool {
		name, _, _ := strings.Cut(strings.ToLower(h), ":")
		return name == "content-length" || name == "transfer-encoding"
	})
	if body != "" && !framed {
		all = append(all, fmt.Sprint("Content-Length: ", len(body)))
	}
	return strings.Join(all, "\r\n") + "\r\n\r\n" + body
}

func jsonRequest(body string, header ...string) string {
	return rawRequest("POST /v1/json", body, append([]string{"Content-Type: application/json"}, header...)...)
}

// phoneRequest is a body that names a phone.
func phoneRequest(number string) string { return jsonRequest(`{"phone": "` + number + `"}`) }

func formRequest(body string, header ...string) string {
	return rawRequest("POST /v1/form", body, append([]string{"Content-Type: application/x-www-form-urlencoded"}, header...)...)
}

// No attempt reaches the upstream: each is refused, or counted under the key that
// is spent.
func TestBypass(t *testing.T) {
	t.Parallel()
	api := startBackend(t, func(http.ResponseWriter, *http.Request) {})
	w := start(t, strings.ReplaceAll(guarded, "URL", api.URL))
	for _, first := range []string{
		phoneRequest(spent), formRequest("phone=%2B8613800138000"), rawRequest("POST /v1/header", "", "X-Phone: "+spent), rawRequest("GET /v1/query?phone=%2B8613800138000", ""),
		rawRequest("GET /v1/call/"+spent, ""), rawRequest("GET /v1/account/919905", ""), rawRequest("GET /v1/order/919905", ""), rawRequest("GET /v1/user", "", "X-User: alice"), rawRequest("GET /v1/cookie", "", "Cookie: sid=1"),
		rawRequest("GET /v1/ip", "", "X-Forwarded-For: "+spender), rawRequest("GET /v1/ip", "", "X-Forwarded-For: 2001:db8::1"),
	} {
		if status, _ := rawResponse(t, w, first); status != http.StatusOK {
			t.Fatalf("the first request is answered %d:\n%s", status, first)
		}
	}
	rows, names := bypassAttempts(), map[string]bool{}
	if len(rows) < 60 {
		t.Errorf("%d attempts, want 60 at least", len(rows))
	}
	before := api.hits()
	for _, row := range rows {
		if names[row.name] {
			t.Errorf("%s stands there twice", row.name)
		}
		names[row.name] = true
		status, body := rawResponse(t, w, row.bytes)
		if !slices.Contains(row.want, status) || api.hits() != before {
			t.Errorf("%s: answered %d, want one of %v; %d requests reached the upstream\n%.300q\n%s", row.name, status, row.want, api.hits()-before, row.bytes, body)
			before = api.hits()
		}
	}
	if status, body := rawResponse(t, w, rawRequest("POST /v1/header", "", "X-Phone: "+unspent)); status != http.StatusOK {
		t.Errorf("the unspent number is answered %d %s, want 200: no attempt used it", status, body)
	}
}

// rawResponse sends bytes as they are and returns the answer.
func rawResponse(t *testing.T, w *weir, text string) (status int, body string) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.URL, "http://"))
	check(t, err)
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(testTimeout))
	io.WriteString(conn, text)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	b, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(b)
}

// bypassAttempts are ways round a limit that somebody has tried somewhere.
func bypassAttempts() []attempt {
	counted, refused, either := []int{429}, []int{400}, []int{400, 429}
	var all []attempt
	add := func(want []int, name, bytes string) { all = append(all, attempt{name, bytes, want}) }
	numbers(add, counted, either)
	bodies(add, counted, refused, either)
	fields(add, counted, refused, either)
	paths(add, either)
	queries(add, counted, refused, either)
	framings(add, counted, refused)
	clients(add, counted)
	return all
}

type addAttempt = func(want []int, name, bytes string)

// numbers are spellings of the spent number.
func numbers(add addAttempt, counted, either []int) {
	for name, number := range map[string]string{
		"as it was": spent, "national": "13800138000", "blanks": "+86 138 0013 8000", "hyphens": "138-0013-8000", "brackets": "+86 (138) 0013.8000",
		"0086": "0086 138 0013 8000", "tel:": "tel:+86-138-0013-8000", "extension": "+86 138 0013 8000 ext 5", "extension of a URI": "tel:+86-138-0013-8000;ext=5",
		"full-width": "\uff0b\uff18\uff16\uff11\uff13\uff18\uff10\uff10\uff11\uff13\uff18\uff10\uff10\uff10", "full-width hyphen": "138\uff0d0013\uff0d8000",
		"Arabic digits":  "+\u0668\u0666\u0661\u0663\u0668\u0660\u0660\u0661\u0663\u0668\u0660\u0660\u0660",
		"Persian digits": "+\u06f8\u06f6\u06f1\u06f3\u06f8\u06f0\u06f0\u06f1\u06f3\u06f8\u06f0\u06f0\u06f0",
		"no-break space": "138\u00a00013\u00a08000", "JSON escapes": `\u002b86\u00313800138000`,
	} {
		add(either, "number: "+name, phoneRequest(number))
	}
	for name, number := range map[string]string{
		"zero-width space": "138\u200b00138000", "word joiner": "138\u206000138000", "right-to-left mark": "\u200f" + spent, "soft hyphen": "138\u00ad00138000",
		"combining mark": "1\u03013800138000", "NUL": spent + `\u0000`, "line break": spent + `\n`, "two numbers": spent + "," + unspent, "two plus": "++8613800138000",
		"two prefixes": "+86+8613800138000", "letter o": "138oo138ooo", "Devanagari digits": "+\u096e\u096c\u0967\u0969\u096e\u0966\u0966\u0967\u0969\u096e\u0966\u0966\u0966",
		"superscript": "1380013800\u2070", "empty": "", "dial string": "138 0013 8000#1", "context": "138-0013-8000;phone-context=+86",
	} {
		add(either, "number: "+name, phoneRequest(number))
	}
}

// bodies are JSON documents and forms in which two readers find two numbers.
func bodies(add addAttempt, counted, refused, either []int) {
	both := func(a, b string) string { return `{` + a + `: "` + unspent + `", ` + b + `: "` + spent + `"}` }
	add(refused, "JSON: name twice", jsonRequest(both(`"phone"`, `"phone"`)))
	add(refused, "JSON: name twice, escaped", jsonRequest(both(`"phone"`, `"\u0070hone"`)))
	add(refused, "JSON: other case", jsonRequest(both(`"phone"`, `"Phone"`)))
	add(refused, "JSON: other case first", jsonRequest(both(`"PHONE"`, `"phone"`)))
	add(refused, "JSON: second document", jsonRequest(`{"phone": "`+unspent+`"}{"phone": "`+spent+`"}`))
	add(either, "JSON: number", jsonRequest(`{"phone": 13800138000}`))
	for _, number := range []string{"13800138000.0", "13800138000.5", "1.3800138e10", "13800138000E+0", "13800138000e0", "-13800138000", "true"} {
		add(refused, "JSON: number "+number, jsonRequest(`{"phone": `+number+`}`))
	}
	add(refused, "JSON: list", jsonRequest(`{"phone": ["`+spent+`"]}`))
	add(refused, "JSON: object", jsonRequest(`{"phone": {"phone": "`+spent+`"}}`))
	add(refused, "JSON: comment", jsonRequest(`{"phone": "`+unspent+`" /*, "phone": "`+spent+`"*/}`))
	add(counted, "JSON: byte order mark", jsonRequest("\ufeff"+`{"phone": "`+spent+`"}`))
	add(refused, "JSON: two byte order marks", jsonRequest("\ufeff\ufeff"+`{"phone": "`+spent+`"}`))
	add(counted, "JSON: text/json", rawRequest("POST /v1/json", `{"phone": "`+spent+`"}`, "Content-Type: text/json"))
	add(refused, "JSON: Latin-1", rawRequest("POST /v1/json", `{"phone": "`+spent+`", "x": "é"}`, "Content-Type: application/json; charset=iso-8859-1"))
	add(refused, "JSON: not UTF-8", jsonRequest("{\"phone\": \"+86138001380\xff00\"}"))
	add(refused, "JSON: half a surrogate", jsonRequest(`{"phone": "`+spent+`\ud800"}`))
	add(refused, "JSON: nothing", jsonRequest(""))
	add(refused, "JSON: as text", rawRequest("POST /v1/json", `{"phone": "`+spent+`"}`, "Content-Type: text/plain"))
	add(refused, "JSON: without a type", rawRequest("POST /v1/json", `{"phone": "`+spent+`"}`))
	add(refused, "JSON: two types", jsonRequest(`{"phone": "`+spent+`"}`, "Content-Type: application/x-www-form-urlencoded"))
	add(refused, "JSON: UTF-16", rawRequest("POST /v1/json", `{"phone": "`+spent+`"}`, "Content-Type: application/json; charset=utf-16"))
	add(refused, "JSON: compressed", jsonRequest("\x1f\x8b\x08\x00", "Content-Encoding: gzip"))
	add(refused, "JSON: header names another", jsonRequest(`{"phone": "`+spent+`"}`, "X-Phone: "+unspent))
	add(refused, "JSON: header twice", jsonRequest(`{"phone": "`+unspent+`"}`, "X-Phone: "+unspent, "X-Phone: "+spent))
	forms(add, counted, refused)
}

// forms are urlencoded and multipart forms in which two readers find two numbers.
func forms(add addAttempt, counted, refused []int) {
	add(refused, "form: twice", formRequest("phone=%2B8613900139000&phone=%2B8613800138000"))
	add(refused, "form: as a list", formRequest("phone=%2B8613900139000&phone[]=%2B8613800138000"))
	add(refused, "form: as a list, escaped", formRequest("phone=%2B8613900139000&phone%5B%5D=%2B8613800138000"))
	add(refused, "form: semicolon", formRequest("phone=%2B8613900139000;phone=%2B8613800138000"))
	add(refused, "form: and query", strings.Replace(formRequest("phone=%2B8613900139000"), "/v1/form", "/v1/form?phone=%2B8613800138000", 1))
	add(refused, "form: query alone", strings.Replace(formRequest("x=1"), "/v1/form", "/v1/form?phone=%2B8613800138000", 1))
	add(refused, "form: query, no body", rawRequest("POST /v1/form?phone=%2B8613800138000", ""))
	add(refused, "form: no UTF-8", formRequest("phone=%2B861380013%b28000"))
	add(refused, "form: bad escape", formRequest("phone=%2B8613900139000&x=%zz"))
	add(counted, "form: national", formRequest("phone=138+0013+8000"))
	add(counted, "form: a line break at the end", formRequest("phone=%2B8613800138000\r\n"))
	add(counted, "form: in ASCII", rawRequest("POST /v1/form", "phone=%2B8613800138000", "Content-Type: application/x-www-form-urlencoded; charset=us-ascii"))
	add(refused, "form: in Latin-1", rawRequest("POST /v1/form", "phone=%2B8613800138000&x=%E9", "Content-Type: application/x-www-form-urlencoded; charset=iso-8859-1"))
	part := func(name, value string) string {
		return "--b\r\nContent-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + value + "\r\n"
	}
	multi := func(body string) string {
		return rawRequest("POST /v1/form", body, "Content-Type: multipart/form-data; boundary=b")
	}
	add(counted, "multipart: as it was", multi(part("phone", spent)+"--b--\r\n"))
	add(counted, "multipart: a bare name", multi(strings.Replace(part("phone", spent), `"phone"`, "phone", 1)+"--b--\r\n"))
	add(counted, "multipart: 8bit", multi(strings.Replace(part("phone", spent), "\r\n\r\n", "\r\nContent-Transfer-Encoding: 8bit\r\n\r\n", 1)+"--b--\r\n"))
	add(refused, "multipart: twice", multi(part("phone", unspent)+part("phone", spent)+"--b--\r\n"))
	add(refused, "multipart: cut off", multi(part("phone", unspent)+part("phone", spent)))
	typed := func(kind, body string) string {
		return rawRequest("POST /v1/form", body, "Content-Type: "+kind)
	}
	add(counted, "multipart: a semicolon", typed("multipart/form-data; boundary=b;", part("phone", spent)+"--b--\r\n"))
	two := part("phone", unspent) + strings.ReplaceAll(part("phone", spent), "--b\r", "--c\r")
	for name, attempt := range map[string]string{
		"two boundaries":     typed("multipart/form-data; boundary=b; boundary=c", two+"--b--\r\n--c--\r\n"),
		"another word":       typed("multipart/form-data; xboundary=c; boundary=b", two+"--b--\r\n"),
		"a boundary quoted":  typed(`multipart/form-data; boundary="b c"`, strings.ReplaceAll(part("phone", unspent), "--b", "--b c")+"--b c--\r\n"),
		"a longer boundary":  multi(part("phone", unspent) + strings.ReplaceAll(part("phone", spent), "--b\r", "--bb\r") + "--b--\r\n"),
		"after the end":      multi(part("phone", unspent) + "--b--\r\n" + part("phone", spent) + "--b--\r\n"),
		"text after the end": multi(part("phone", unspent) + "--b--\r\nx"),
		"blank at a line":    multi(strings.Replace(part("phone", unspent), "--b", "--b ", 1) + "--b--\r\n"),
		"line feeds":         multi(strings.ReplaceAll(part("phone", unspent)+"--b--\r\n", "\r\n", "\n")),
		"a line feed":        multi(part("a", "1\n--b\nContent-Disposition: form-data; name=\"phone\"\n\n"+spent) + part("phone", unspent) + "--b--\r\n"),
		"half a quote":       multi(strings.Replace(part("phone", unspent), `"phone"`, `phone"`, 1) + "--b--\r\n"),
		"an escaped name":    multi(strings.Replace(part("phone", unspent), `"phone"`, `"ph\one"`, 1) + "--b--\r\n"),
		"two names":          multi(strings.Replace(part("phone", unspent), `"phone"`, `"a"; name="phone"`, 1) + "--b--\r\n"),
		"a name of RFC 2231": multi(part("phone", unspent) + strings.Replace(part("phone", spent), "name=\"phone\"", "name*=utf-8''phone", 1) + "--b--\r\n"),
		"an encoding":        multi(strings.Replace(part("phone", unspent), "\r\n\r\n", "\r\nContent-Transfer-Encoding: base64\r\n\r\n", 1) + "--b--\r\n"),
		"a folded field":     multi(strings.Replace(part("phone", unspent), "; name", ";\r\n name", 1) + "--b--\r\n"),
		"a part of parts":    multi("--b\r\nContent-Disposition: form-data; name=\"a\"\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n" + strings.ReplaceAll(part("phone", spent), "--b", "--c") + "--c--\r\n" + part("phone", unspent) + "--b--\r\n"),
		"a name as a list":   multi(part("phone", unspent) + part("phone[]", spent) + "--b--\r\n"),
		"a name of RFC 2047": multi(part("phone", unspent) + part("=?utf-8?B?cGhvbmU=?=", spent) + "--b--\r\n"),
		"no UTF-8":           multi(part("phone", "+861380013\xb28000") + "--b--\r\n"),
		"a name in capitals": multi(part("phone", unspent) + part("Phone", spent) + "--b--\r\n"),
		"a file":             multi(part("phone\"; filename=\"x", unspent) + "--b--\r\n"),
	} {
		add(refused, "multipart: "+name, attempt)
	}
	add(refused, "multipart: preamble", multi(part("phone", spent)[3:]+part("phone", unspent)+"--b--\r\n"))
}

// fields are headers.
func fields(add addAttempt, counted, refused, either []int) {
	to := func(lines ...string) string { return rawRequest("POST /v1/header", "", lines...) }
	add(counted, "header: other case", to("x-pHoNe: "+spent))
	add(counted, "header: blanks around", to("X-Phone: \t "+spent+" \t"))
	add(refused, "header: twice", to("X-Phone: "+unspent, "X-Phone: "+spent))
	add(refused, "header: twice, other case", to("X-Phone: "+unspent, "x-phone: "+spent))
	add(refused, "header: name with an underscore", to("X-Phone: "+unspent, "X_Phone: "+spent))
	for _, name := range []string{"X_Phone", "X.Phone", "x.phone", "X_Forwarded_For", "X.Forwarded-For", "X_Request_Id"} {
		add(refused, "header: as "+name, to("X-Phone: "+unspent, name+": "+spent))
		add(refused, "header: only as "+name, to(name+": "+spent))
	}
	for name, value := range map[string]string{
		"Arabic digits": "+\u0668\u0666\u0661\u0663\u0668\u0660\u0660\u0661\u0663\u0668\u0660\u0660\u0660", "a digit more": spent + "\u0661", "a superscript": spent + "\u00b2",
		"a full-width digit": spent + "\uff17", "extension 7": spent + " ext 7", "extension 8": spent + " x8", "of a URI": "tel:" + spent + ";ext=9",
	} {
		add(refused, "header: "+name, to("X-Phone: "+value))
	}
	add(refused, "header: list", to("X-Phone: "+unspent+", "+spent))
	add(refused, "header: empty first", to("X-Phone:", "X-Phone: "+spent))
	add(refused, "header: blank before the colon", to("X-Phone : "+spent))
	add(either, "header: folded", to("X-Phone: +86\r\n 13800138000"))
	add(refused, "header: NUL", to("X-Phone: "+spent+"\x00"))
	add(counted, "header: method override", to("X-Phone: "+spent, "X-HTTP-Method-Override: GET"))
	add(counted, "header: other method", strings.Replace(to("X-Phone: "+spent), "POST", "PUT", 1))
	add(counted, "header: upgrade to h2c", to("X-Phone: "+spent, "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA"))
	add(counted, "user: other case", rawRequest("GET /v1/user", "", "X-User: ALICE"))
	add(counted, "user: blanks", rawRequest("GET /v1/user", "", "X-User:   Alice  "))
	add(refused, "cookie: twice", rawRequest("GET /v1/cookie", "", "Cookie: sid=2; sid=1"))
	add(refused, "cookie: two headers", rawRequest("GET /v1/cookie", "", "Cookie: sid=2", "Cookie: sid=1"))
	for _, line := range []string{"sid[]=1", "sid[x]=1", "+sid=1", "s%69d=1", "SID=1", "sid =1", "sid= 1", "=sid=1", "sid=%31%zz", `a="; sid=3; b="`, "sid=2; sid%00=1", "sid=1+", "sid=j:1", "sid=j%3A%221%22"} {
		add(refused, "cookie: "+line, rawRequest("GET /v1/cookie", "", "Cookie: "+line))
	}
	for _, value := range []string{"al\u00e9", "a\tb", "\u00a0alice", "alice\u200b"} {
		add(refused, "user: "+value, rawRequest("GET /v1/user", "", "X-User: "+value))
	}
}

// paths are spellings of one.
func paths(add addAttempt, either []int) {
	for _, path := range []string{
		"//v1/header", "/v1//header", "/v1/./header", "/v1/x/../header", "/v1/x/%2e%2e/header", "/v1/%2E/header", "/v1/%68eader", "/v1%2fheader", "/v1%5cheader",
		`/v1\header`, "/v1/header;x=1", "/v1;x/header", "/v1/header%00", "/v1/header%20", "/v1/%2568eader", "/v1/header%0a", "/v1%c0%afheader", "/v1/header.", "/v1/header%3fx", "/v1/header%253bx", "/./v1/header",
		"http://x/v1/header", "http://other/v1/header", "/v1/header?x=1", "/v1/header/..%2fheader", "/v1/header#x",
	} {
		add(either, "path: "+path, rawRequest("POST "+path, "", "X-Phone: "+spent))
	}
	for _, line := range []string{"HEAD /v1/call/13800138000;x=1", "GeT /v1/call/13800138000.", "HEAD /v1/call/13800138000%3F", "head /v1/call/13800138000%23"} {
		add([]int{400}, "method: "+line, rawRequest(line, ""))
	}
	for _, host := range []string{"x:80:80", "x,y", "x:65536", "y@x", "x%2ey", "x;", "[::1", "x..y"} {
		add([]int{400}, "host: "+host, strings.Replace(rawRequest("POST /v1/header", "", "X-Phone: "+spent), "Host: x", "Host: "+host, 1))
		add([]int{400}, "absolute: "+host, rawRequest("POST http://"+host+"/v1/header", "", "X-Phone: "+spent))
	}
	for _, phone := range []string{"%2B8613800138000", "13800138000", "138%2000138000", "0086-138-0013-8000", "%EF%BC%8B8613800138000", "tel:+8613800138000", "+8613800138000;x=1", "+8613800138000%253bx", "+8613800138000%20"} {
		add(either, "parameter: "+phone, rawRequest("GET /v1/call/"+phone, ""))
	}
	for _, line := range []string{"GET /v1/account/919905", "HEAD /v1/account/919905", "GET /V1/account/919905", "GET /v1/order/919905", "HEAD /v1/order/919905", "GET /v1/Order/919905"} {
		for _, format := range []string{".json", ".a1", ".json/", "%2Ejson", ".a.b", ".", ".json?x=1"} { // Rails, Grape and Spring before 5.3 read the same id
			add([]int{400}, "format: "+line+format, rawRequest(line+format, ""))
		}
	}
}

func queries(add addAttempt, counted, refused, either []int) {
	to := func(query string) string { return rawRequest("GET /v1/query?"+query, "") }
	add(refused, "query: twice", to("phone=%2B8613900139000&phone=%2B8613800138000"))
	add(refused, "query: semicolon", to("phone=%2B8613900139000;phone=%2B8613800138000"))
	add(refused, "query: other case", to("phone=%2B8613900139000&Phone=%2B8613800138000"))
	add(refused, "query: list", to("phone=%2B8613900139000&phone[]=%2B8613800138000"))
	add(refused, "query: list, escaped", to("phone=%2B8613900139000&phone%5B%5D=%2B8613800138000"))
	add(refused, "query: indexed", to("phone[0]=%2B8613800138000&phone=%2B8613900139000"))
	for _, line := range []string{"POST /v1/query?phone=%2B8613900139000", "GET /v1/query?phone=%2B8613900139000", "PUT /v1/query?x=1"} {
		add(refused, "query: beside a form, "+line, rawRequest(line, "phone=%2B8613800138000", "Content-Type: application/x-www-form-urlencoded"))
		add(refused, "query: beside parts, "+line, rawRequest(line, "--b--\r\n", "Content-Type: multipart/form-data; boundary=b"))
		add(refused, "query: beside an odd form, "+line, rawRequest(line, "phone=%2B8613800138000", "Content-Type: text/plain, application/X-WWW-form-urlencoded"))
	}
	add(refused, "query: beside a body without a type", rawRequest("POST /v1/query?phone=%2B8613900139000", "phone=%2B8613800138000"))
	add(counted, "query: beside JSON", rawRequest("POST /v1/query?phone=%2B8613800138000", "{}", "Content-Type: application/json"))
	add(refused, "query: no UTF-8", to("phone=%2B861380013%b28000"))
	add(refused, "query: bad escape", to("phone=%2B8613900139000&x=%zz"))
	add(counted, "query: name escaped", to("%70hone=%2B8613800138000"))
	for _, name := range []string{"phone[]", "phone[x]", "[phone]", "[phone][]", "phone]", "+phone", "%20phone", "phone+", "phone%00", "phone%00x", "PHONE", "!phone", "?phone", "%3Fphone", "ph%6Fne[", "phone[0][1]"} {
		if name != "ph%6Fne[" { // phone_, to PHP, and phone to Rack
			add(refused, "query: as "+name, to("phone=%2B8613900139000&"+name+"=%2B8613800138000"))
		}
		add(refused, "query: only as "+name, to(name+"=%2B8613800138000"))
		add(refused, "form: as "+name, formRequest("phone=%2B8613900139000&"+name+"=%2B8613800138000"))
	}
	add(either, "query: plus as a blank", to("phone=+8613800138000"))
}

// framings are ways to say how long a body is.
func framings(add addAttempt, counted, refused []int) {
	body := `{"phone": "` + spent + `"}`
	chunks := "10\r\n" + body[:16] + "\r\n" + "B;x=y\r\n" + body[16:] + "\r\n0\r\n\r\n"
	add(counted, "chunked", jsonRequest(chunks, "Transfer-Encoding: chunked"))
	add(refused, "chunked: bad size", jsonRequest("+10\r\n"+body+"\r\n0\r\n\r\n", "Transfer-Encoding: chunked"))
	add([]int{400, 429}, "both lengths", jsonRequest(chunks, "Transfer-Encoding: chunked", "Content-Length: 4"))
	add(refused, "two lengths", jsonRequest(body, "Content-Length: 27", "Content-Length: 4"))
	add(refused, "length with a sign", jsonRequest(body, "Content-Length: +27"))
	add([]int{400, 501}, "unknown coding", jsonRequest(chunks, "Transfer-Encoding: xchunked"))
	add([]int{400, 501}, "coding twice", jsonRequest(chunks, "Transfer-Encoding: chunked, chunked"))
	add([]int{400, 429, 501}, "chunked in HTTP/1.0", strings.Replace(jsonRequest(chunks, "Transfer-Encoding: chunked"), "HTTP/1.1", "HTTP/1.0", 1))
	add(counted, "ends in a trailer", jsonRequest(strings.TrimSuffix(chunks, "\r\n")+"X-Phone: "+unspent+"\r\n\r\n", "Transfer-Encoding: chunked", "Trailer: X-Phone"))
}

// clients are addresses of the spent clients, told by the trusted proxy.
func clients(add addAttempt, counted []int) {
	to := func(lines ...string) string { return rawRequest("GET /v1/ip", "", lines...) }
	for _, chain := range []string{
		spender, "198.51.100.1, " + spender, "198.51.100.1," + spender, "127.0.0.1, " + spender, spender + ":4711", "::ffff:" + spender,
		"2001:db8::2", "2001:db8:0:0:ffff::1", "[2001:db8::3]:80", "2001:DB8::4", "10.0.0.1, 2001:db8::5",
	} {
		add(counted, "chain: "+chain, to("X-Forwarded-For: "+chain))
	}
	add(counted, "chain: two lines", to("X-Forwarded-For: 198.51.100.1", "X-Forwarded-For: "+spender))
	add(counted, "chain: other fields", to("X-Forwarded-For: "+spender, "X-Real-IP: 198.51.100.2", "True-Client-IP: 198.51.100.3", "Forwarded: for=198.51.100.4", "CF-Connecting-IP: 198.51.100.5"))
}

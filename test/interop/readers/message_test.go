//go:build readers

package readers

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A field is one header line, its name and value as they go over the wire.
type field struct {
	name, between, value string
}

// A message is one request, byte by byte.
type message struct {
	method, target, version string
	fields                  []field
	body                    []byte
	chunked                 bool
	extension               string  // after each chunk's size
	trailers                []field // with chunked
	http2                   bool
	host                    string // for HTTP/2; fields have it otherwise
	length                  bool   // whether Content-Length is written
	labels                  []string
}

// request is a plain one.
func request(method, target string) *message {
	m := &message{method: method, target: target, version: "HTTP/1.1", host: "weir.example", length: true}
	m.add("Host", m.host)
	return m
}

func (m *message) add(name, value string) { m.fields = append(m.fields, field{name, ": ", value}) }

// set gives the first field of that name another value, or adds one.
func (m *message) set(name, value string) {
	if i := m.index(name); i >= 0 {
		m.fields[i].value = value
		return
	}
	m.add(name, value)
}

// index is where the first field of that name is, -1 if there is none.
func (m *message) index(name string) int {
	return slices.IndexFunc(m.fields, func(f field) bool { return strings.EqualFold(f.name, name) })
}

func (m *message) remove(name string) {
	m.fields = slices.DeleteFunc(m.fields, func(f field) bool { return strings.EqualFold(f.name, name) })
}

// label says what is odd about the request.
func (m *message) label(format string, args ...any) {
	m.labels = append(m.labels, fmt.Sprintf(format, args...))
}

// form gives the request a body.
func (m *message) form(kind, body string) {
	m.set("Content-Type", kind)
	m.body = []byte(body)
}

// bytes is the request as HTTP/1.1 sends it.
func (m *message) bytes() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s %s\r\n", m.method, m.target, m.version)
	for _, f := range m.fields {
		b.WriteString(f.name + f.between + f.value + "\r\n")
	}
	switch {
	case m.chunked:
		b.WriteString("Transfer-Encoding: chunked\r\n\r\n")
		half := len(m.body) / 2
		for _, part := range [][]byte{m.body[:half], m.body[half:]} {
			if len(part) > 0 {
				fmt.Fprintf(&b, "%x%s\r\n%s\r\n", len(part), m.extension, part)
			}
		}
		b.WriteString("0\r\n")
		for _, f := range m.trailers {
			b.WriteString(f.name + f.between + f.value + "\r\n")
		}
		b.WriteString("\r\n")
		return b.Bytes()
	case m.body != nil && m.length:
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(m.body))
	}
	b.WriteString("\r\n")
	b.Write(m.body)
	return b.Bytes()
}

// String is the request as a report shows it.
func (m *message) String() string {
	protocol := ""
	if m.http2 {
		protocol = "over HTTP/2, :authority " + m.host + ": "
	}
	text := m.bytes()
	if len(text) > 1500 {
		text = append(bytes.Clone(text[:1500]), "..."...)
	}
	return fmt.Sprintf("%s%q", protocol, text)
}

// A maker makes one request. Two numbers are its own: own, which it tries to get
// past its limit, and other, with which it distracts.
type maker struct {
	*rand.Rand
	own, other string
}

// newMaker is the one of request i.
func newMaker(seed uint64, i int) *maker {
	r := rand.New(rand.NewPCG(seed, uint64(i)))
	k := &maker{Rand: r}
	k.own, k.other = fmt.Sprintf("13%09d", 2*i+1_000_000), fmt.Sprintf("13%09d", 2*i+1_000_001)
	if k.IntN(40) == 0 {
		k.own = stolen
	}
	return k
}

// variation is request i and, where there is one, the request that goes before it.
func variation(seed uint64, i int) (m, prime *message) {
	k := newMaker(seed, i)
	sources := []func() *message{
		k.header, k.query, k.query, k.form, k.form, k.multipart, k.multipart, k.multipart, k.json,
		k.cookie, k.path, k.told, k.token, k.mark, k.cost, k.any, k.pay, k.forwarded,
	}
	m = sources[i%len(sources)]()
	if strings.HasPrefix(m.target, "/v1/mark") {
		prime = plain("mark", k.own)
		prime.add("Idempotency-Key", "mark-"+k.own)
	}
	k.twist(m)
	if len(m.labels) == 0 {
		m.label("plain")
	}
	return m, prime
}

// pick is one of several, and any does one of several things.
func pick[T any](k *maker, all ...T) T { return all[k.IntN(len(all))] }

// header carries the number in X-Phone.
func (k *maker) header() *message {
	m := request("POST", "/v1/header")
	text, label := k.text()
	k.field(m, "X-Phone", text, label)
	return m
}

// told carries a number in X-Phone, and another in the field that tells the reader
// which number was counted.
func (k *maker) told() *message {
	m := request("POST", "/v1/told")
	if k.IntN(3) == 0 {
		text, label := k.international()
		m.add("X-Phone", text)
		m.label("%s", label)
		return m
	}
	m.add("X-Phone", k.own)
	name := k.disguise("X-Phone-E164")
	m.add(name, "+86"+k.other)
	m.label("field %s", name)
	return m
}

// forwarded makes up where the request comes from.
func (k *maker) forwarded() *message {
	m := plain("header", k.own)
	name := pick(k, "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto")
	spelled := k.disguise(name)
	m.add(spelled, spoof)
	m.label("field %s", spelled)
	if k.IntN(4) == 0 {
		m.add("Connection", "close, "+name)
		m.label("named by Connection")
	}
	return m
}

// query carries the number in the query.
func (k *maker) query() *message {
	m := request("GET", "")
	m.target = "/v1/query?" + k.pairs(m)
	return m
}

// any is read by its header and its query, whatever its method is.
func (k *maker) any() *message {
	m := request(pick(k, "OPTIONS", "OPTIONS", "GET", "POST", "DELETE", "PROPFIND"), "/v1/any")
	if k.IntN(2) == 0 {
		m.target += "?phone_no=" + k.own
	} else {
		m.add("X-Phone", k.own)
	}
	m.label("method %s", m.method)
	if k.IntN(3) > 0 {
		m.add("Origin", "https://www.example.com")
		m.add("Access-Control-Request-Method", pick(k, "POST", "GET", "post"))
		m.label("as a preflight")
		if k.IntN(2) == 0 {
			m.add("Access-Control-Request-Headers", "x-phone")
		}
	}
	return m
}

// cost says how much the request costs.
func (k *maker) cost() *message {
	name, label := k.name("cost_no")
	value := pick(k, "10", "+10", "10.0", "1e1", "010", "0xa", "10;", "10,1", "%2010", "10%20", "10%00", "1%30", "10#", "%D9%A1%D9%A0", "10abc")
	m := request("GET", "/v1/cost?"+name+"="+value)
	m.label("cost %s=%s", label, value)
	switch k.IntN(4) {
	case 0:
		m.target = "/v1/cost?cost_no=1&" + name + "=" + value
		m.label("after a plain one")
	case 1:
		m.target = "/v1/cost?" + name + "=" + value + "&cost_no=1"
		m.label("before a plain one")
	}
	m.add("X-Phone", k.own)
	return m
}

// mark is a request that was sent before, with another mark or the same.
func (k *maker) mark() *message {
	if k.own == stolen {
		k.own = k.other // it would be refused
	}
	m := request("POST", "/v1/mark")
	m.add("X-Phone", k.own)
	name := k.disguise("Idempotency-Key")
	value := "mark-" + k.own
	value = pick(k, value, value, strings.ToUpper(value), value+" ", "\""+value+"\"", value+";x=1", value+",", value+"\t", "\xa0"+value)
	m.add(name, value)
	m.label("mark %s: %q", name, strings.ReplaceAll(strings.ToLower(value), k.own, "N"))
	if k.IntN(3) == 0 {
		m.add("Idempotency-Key", "mark-"+k.own)
		m.label("beside a plain one")
	}
	if k.IntN(4) == 0 {
		m.add("Connection", "Idempotency-Key")
		m.label("named by Connection")
	}
	return m
}

// token carries the number in a signed bearer token.
func (k *maker) token() *message {
	m := request("GET", "/v1/token")
	between := pick(k, " ", "  ", "   ", "\t", " \t", "\t ", ",", ": ", "=", "", "\xa0", " ,", "\v", " \f")
	scheme := pick(k, "Bearer", "Bearer", "bearer", "BEARER", "Bearer Bearer", "Basic Bearer", "JWT", "Token")
	ends := pick(k, "", "", " ", "\t", ",", ";", " x", ", Basic eDp5", "=", "==", ".")
	before := pick(k, "", "", "", " ", "\t", ", ", "\"")
	m.add(k.alike("Authorization"), before+scheme+between+signed(k.own)+ends)
	m.label("authorization %q%q%q..%q", before, scheme, between, ends)
	if k.IntN(6) == 0 {
		m.add("Authorization", pick(k, "Basic eDp5", "Bearer "+signed(k.other), ""))
		m.label("another authorization")
	}
	return m
}

// signed is a token for sub.
func signed(sub string) string {
	encode := base64.RawURLEncoding.EncodeToString
	claims, _ := json.Marshal(map[string]any{"sub": sub, "exp": 4102444800})
	text := encode([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + encode(claims)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(text))
	return text + "." + encode(mac.Sum(nil))
}

// path carries the number in the path.
func (k *maker) path() *message {
	first, last := k.own[:4], k.own[4:]
	part := pick(k, k.own, k.own+";x=1", k.own+";", k.own+"%3Bx", k.own+".", k.own+"%20", k.own+"+", k.own+"%00", k.own+"%00x",
		"%20"+k.own, first+"%2D"+last, first+"%2f"+last, first+"%5C"+last, first+"/../"+k.own, "./"+k.own, "%2e/"+k.own,
		k.own+"/.", k.own+"/", k.own+"//", k.own+"%0a", k.own+"%23", k.own+"#1", k.own+"%3F", k.own+"?1", k.own+"%2525",
		percent(k.own), k.other+"/../"+k.own, k.other+"%2f..%2f"+k.own, k.other+";/../"+k.own, k.own+"%2e", k.own+"%c0%ae", k.own+"\\", k.own+"%80",
		k.own+"%E3%80%80", k.own+"%C2%A0", strings.Replace(k.own, "1", "%25%31", 1), k.own+"%252F", k.own+".json", k.own+",", k.own+"\xff", k.own+"~")
	m := request("GET", "/v1/users/"+part)
	m.label("path %s", strings.ReplaceAll(strings.ReplaceAll(part, k.own, "N"), k.other, "Q"))
	return m
}

// percent escapes every byte.
func percent(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, "%%%02X", s[i])
	}
	return b.String()
}

// pay goes to a host that has limits.
func (k *maker) pay() *message {
	m := plain("pay", k.own)
	host := pick(k, "PAY.example.com", "pay.example.com.", "pay.example.com:80", "pay.example.com:8080", "pay.example.com:", "pay.example.com..",
		"pay.example.com:080", "pay.example.com:0", "pay.example.com:99999", "pay.example.com:80:80", " pay.example.com", "pay.example.com ", "pay.example.com\t",
		"pay.example.com/", "pay.example.com/x", "pay.example.com?x", "pay.example.com#x", "x@pay.example.com", "pay.example.com@x", "pay.example.com,x", "x,pay.example.com",
		"pay%2eexample.com", "p%61y.example.com", "pay.example.com%00", "pay.example.com\\x", "ｐay.example.com", "pay。example.com", "", "127.0.0.1", "[::1]", "pay.example.com;", "pay_example.com")
	m.host = host
	m.set("Host", host)
	m.label("host %q", host)
	switch k.IntN(6) {
	case 0:
		m.add("Host", "weir.example")
		m.label("two hosts")
	case 1:
		m.remove("Host")
		m.label("no host")
		m.version = pick(k, "HTTP/1.1", "HTTP/1.0")
	case 2:
		m.host = "weir.example"
		m.set("Host", m.host)
		m.target = "http://" + host + m.target
		m.label("absolute")
	case 3:
		m.set("Host", "pay.example.com")
		m.target = "http://weir.example" + m.target
		m.label("absolute with another host")
	}
	return m
}

// An answer is what came back: the status and, from a reader, what it read.
type answer struct {
	status int
	acted  bool   // a reader's own program has answered
	route  string // the one that the reader took
	read   map[string][]string
}

// answerTimeout is how long an answer may take; without one the request counts as refused.
const answerTimeout = 20 * time.Second

// send sends a request on a connection of its own.
func send(addr string, m *message) (answer, error) {
	c, err := net.DialTimeout("tcp", addr, answerTimeout)
	if err != nil {
		return answer{}, err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(answerTimeout))
	if m.http2 {
		return send2(c, m)
	}
	if _, err := c.Write(m.bytes()); err != nil {
		return answer{}, fmt.Errorf("write: %w", err)
	}
	r, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: m.method})
	if err != nil {
		return answer{}, fmt.Errorf("read: %w", err)
	}
	return told(r.StatusCode, r.Header.Get("X-Read"))
}

// told reads what a reader says.
func told(status int, text string) (answer, error) {
	a := answer{status: status}
	if status != http.StatusOK || text == "" {
		return a, nil
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return a, err
	}
	all := map[string]json.RawMessage{}
	if err := json.Unmarshal(raw, &all); err != nil {
		return a, fmt.Errorf("%q: %w", raw, err)
	}
	a.acted, a.read = true, map[string][]string{}
	for name, value := range all {
		if name == "route" {
			err = errors.Join(err, json.Unmarshal(value, &a.route))
			continue
		}
		var texts []string
		err = errors.Join(err, json.Unmarshal(value, &texts))
		a.read[name] = texts
	}
	return a, err
}

// dropped are the fields that HTTP/2 has no place for.
func dropped() []string {
	return []string{"host", "connection", "transfer-encoding", "keep-alive", "upgrade"}
}

// send2 sends the request with HTTP/2 frames and takes what comes on its stream.
func send2(c net.Conn, m *message) (answer, error) {
	var head bytes.Buffer
	encoder := hpack.NewEncoder(&head)
	write := func(name, value string) {
		encoder.WriteField(hpack.HeaderField{Name: name, Value: value})
	}
	write(":method", m.method)
	write(":scheme", "http")
	write(":path", m.target)
	write(":authority", m.host)
	for _, f := range m.fields {
		if name := strings.ToLower(f.name); !slices.Contains(dropped(), name) {
			write(name, f.value)
		}
	}
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		return answer{}, err
	}
	framer := http2.NewFramer(c, c)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	framer.WriteSettings()
	trailers := len(m.trailers) > 0
	framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head.Bytes(), EndHeaders: true,
		EndStream: len(m.body) == 0 && !trailers})
	if len(m.body) > 0 {
		framer.WriteData(1, !trailers, m.body)
	}
	if trailers {
		head.Reset()
		for _, f := range m.trailers {
			write(strings.ToLower(f.name), f.value)
		}
		framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head.Bytes(), EndHeaders: true, EndStream: true})
	}
	return take2(framer)
}

// take2 is what stream 1 is answered with.
func take2(framer *http2.Framer) (answer, error) {
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return answer{}, fmt.Errorf("read frame: %w", err)
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				framer.WriteSettingsAck()
			}
		case *http2.RSTStreamFrame:
			return answer{status: http.StatusBadRequest}, nil
		case *http2.GoAwayFrame:
			if f.ErrCode != http2.ErrCodeNo {
				return answer{status: http.StatusBadRequest}, nil
			}
		case *http2.MetaHeadersFrame:
			status, text := 0, ""
			fmt.Sscan(f.PseudoValue("status"), &status)
			for _, h := range f.RegularFields() {
				if h.Name == "x-read" {
					text = h.Value
				}
			}
			if status >= 200 {
				return told(status, text)
			}
		}
	}
}

package simulate

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// bodyOf returns the value that a line of JSON has between quotes for the body.
func bodyOf(t *testing.T, quoted string) (body string, ok bool) {
	t.Helper()
	line := `{"method":"GET","path":"/","time":1795345547,"request_body":"` + quoted + `"}`
	k, r := readFirst(t, line, newNames(t), JSON)
	return r.Body, k == kindRequest
}

// Strings of JSON are read as encoding/json reads them; whatever that refuses between
// quotes is refused, but for \x, which nginx writes.
func TestRead_StringsAgreeWithEncodingJSON(t *testing.T) {
	check := func(s string) {
		t.Helper()
		var want string
		wantErr := json.Unmarshal([]byte(`"`+s+`"`), &want)
		if got, ok := bodyOf(t, s); ok != (wantErr == nil) || ok && got != want {
			t.Errorf("%q: %q, %v; want %q, %v", s, got, ok, want, wantErr)
		}
	}
	for _, s := range []string{
		"", "a", `\"`, `\\`, `\/`, `\b\f\n\r\t`, `a\u00fcb`, `\u00FC`, `\u00fg`, `\u00f`, `\u`, `\q`, `a\`, `\ud83d\ude00`, `\uD83D\uDE00!`,
		`\ud83d`, `\ud83d!`, `\ud83d\`, `\ud83d\n`, `\ud83d\u0041`, `\ude00\ud83d`, `\ud83d\ud83d\ude00`, `\ud83d\u00`, "\\u000\x66", `\u000G`, `\u000g`, `\u000/`, `\u000:`, `\u000@`,
		`\\x41`, `\\\\x4`,
	} {
		check(s)
	}
	random := rand.New(rand.NewPCG(1, 2))
	pieces := []string{`\`, `\`, "u", `\u00e9`, `\ud83d`, `\ude00`, `\u0041`, "a", "9", "0", "F", "n", "/"}
	for range 500 {
		var b strings.Builder
		for range random.IntN(6) {
			b.WriteString(pieces[random.IntN(len(pieces))])
		}
		check(b.String())
	}
	for s, want := range map[string]string{`\x41\x7e`: "A~", `\x22\x5C\x0a`: "\"\\\n", `\xc3\xbc\\x41`: `ü\x41`, `\n\\\x41`: "\n\\A"} {
		if got, ok := bodyOf(t, s); !ok || got != want {
			t.Errorf("%q: %q, %v; want %q", s, got, ok, want)
		}
	}
	for _, s := range []string{`\x`, `\x4`, `\x4g`, `\xg4`} {
		if got, ok := bodyOf(t, s); ok {
			t.Errorf("%q: %q; want an error", s, got)
		}
	}
}

// A duration has the unit of its field, its own, or the one that its form tells.
func TestRead_Durations(t *testing.T) {
	for field, want := range map[string]time.Duration{
		`"request_time":"0.250"`: 250 * time.Millisecond, `"request_time":3`: 3 * time.Second, `"request_time":"-"`: 0, `"request_time":"1s"`: 0, `"request_time":-1`: 0,
		`"duration_ms":1.5`: 1500 * time.Microsecond, `"latency_us":"7"`: 7 * time.Microsecond, `"Duration":1500000`: 1500 * time.Microsecond,
		`"duration":12`: 12 * time.Millisecond, `"duration":0.25`: 250 * time.Millisecond, `"duration":"12"`: 12 * time.Second, `"took":"1.5ms"`: 1500 * time.Microsecond, `"elapsed":"-2s"`: 0,
		`"duration":"long","request_time":"2"`: 2 * time.Second, `"request_time":"2","duration":"9"`: 2 * time.Second,
	} {
		k, r := readFirst(t, `{"method":"GET","path":"/","start":1795345547,`+field+`}`, newNames(t), JSON)
		if k != kindRequest || r.Took != want {
			t.Errorf("%s: %v, %v; want %v", field, k, r.Took, want)
		}
	}
}

// Fields are those of JSON: one that is not is no line of it. Of several names of one role the first in the list counts,
// and one without a valid value does not.
func TestRead_FieldsOfJSON(t *testing.T) {
	for line, want := range map[string]string{
		`{"method":"GET","path":"/a","time":1795345547}`:                                        "GET /a",
		`{"method":"GET","path":"/a?b","query":"c","time":1795345547}`:                          "GET /a?b",
		`{"method":"GET","path":"/a","query":"?c","time":1795345547}`:                           "GET /a?c",
		`{"method":"GET","uri":"/b","request_uri":"/a?b","target":"/c","time":1795345547}`:      "GET /a?b",
		`{"method":"GET","path":"/b","uri":"/a","time":1795345547}`:                             "GET /a",
		`{"request":"PUT /a?b HTTP/1.1","uri":"/a","time":1795345547}`:                          "PUT /a?b",
		`{"request":"PUT /a HTTP/1.1","method":"GET","request_uri":"/b?c","time":1795345547}`:   "GET /b?c",
		`{"request":{"method":"GET","uri":["/a"]},"time":0.125,"timestamp":1795345547}`:         "GET /a",
		`{"method":"GET","uri":"/a","timestamp":1795345547,"time":"-","status":200,"code":"-"}`: "GET /a",
		`{"request":{"method":"GET","uri":["/a","/b"]},"time":1795345547}`:                      "",
		`{"method":"GET","method":"PUT","path":"/a","time":1795345547}`:                         "GET /a",
		`{"method":"GET","path":null,"uri":"/a","time":1795345547,"a":{"b":[1,{}]}}`:            "GET /a",
		"{\"method\":\"GET\",\"path\":\"/\xff\",\"time\":1795345547}":                           "GET /\xff",
	} {
		k, r := readFirst(t, line, newNames(t), Auto)
		if got := strings.TrimSpace(r.Method + " " + r.Target); k == kindRequest && got != want || (k == kindRequest) != (want != "") {
			t.Errorf("%s: %v %q; want %q", line, k, got, want)
		}
	}
	for _, line := range []string{`{"method":"GET","path":"/","time":1795345547,"a":-}`, `{"method":"GET","path":"/","time":1795345547,}`, `[]`} {
		if k, _ := readFirst(t, line, newNames(t), JSON); k != kindMalformed {
			t.Errorf("%s: %v; want that it is malformed", line, k)
		}
	}
}

func TestNumber(t *testing.T) {
	for s, want := range map[string]struct {
		whole, billionths int64
		ok                bool
	}{
		"0": {0, 0, true}, "007": {7, 0, true}, "9": {9, 0, true}, "1.5": {1, 500_000_000, true}, "0.000000001": {0, 1, true}, "0.0000000019": {0, 1, true}, "3.": {3, 0, true}, "1.1234567891": {1, 123_456_789, true},
		"1.09": {1, 90_000_000, true}, "1795345547.123": {1795345547, 123_000_000, true},
		"": {}, ".5": {}, "-1": {}, "+1": {}, "1e9": {}, "1,5": {}, "1.5.": {}, "1.:": {}, "/": {}, ":": {}, "1/": {}, "a": {},
		"4611686018427387904": {4611686018427387904, 0, true}, "46116860184273879040": {}, "99999999999999999999": {},
	} {
		if whole, billionths, ok := parseNumber(s); whole != want.whole && ok || billionths != want.billionths && ok || ok != want.ok {
			t.Errorf("%q: %d and %d billionths, %v; want %+v", s, whole, billionths, ok, want)
		}
	}
}

package key

import (
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/test/rounds"
)

var (
	anyName     = regexp.MustCompile(`(?i)name\*?[0-9]*\*?=(?:utf-8'')?"?((?:[^";\\\n]|\\.)*)`)
	anyBoundary = regexp.MustCompile(`(?i)boundary="?([^";,]*)`)
)

// looseForm is how forgiving servers read a form in parts, all at once: any line
// that begins with a boundary of the Content-Type begins a part, whatever ends the
// lines and whatever stood before or after, and any name counts.
func looseForm(kind, body string) (values []string) {
	for _, match := range anyBoundary.FindAllStringSubmatch(kind, -1) {
		lines := strings.Split(strings.ReplaceAll(strings.ReplaceAll(body, "\r\n", "\n"), "\r", "\n"), "\n")
		var part []string
		in := false
		end := func() {
			header, text, _ := strings.Cut(strings.Join(part, "\n"), "\n\n")
			for _, name := range anyName.FindAllStringSubmatch(header, -1) {
				if strings.EqualFold(strings.ReplaceAll(name[1], `\`, ""), "phone") {
					values = append(values, text)
				}
			}
		}
		for _, line := range lines {
			if strings.HasPrefix(strings.TrimLeft(line, " "), "--"+match[1]) {
				if in {
					end()
				}
				part, in = nil, true
				continue
			}
			part = append(part, line)
		}
		if in {
			end()
		}
	}
	return values
}

// A form that is taken has the one value that a forgiving server finds as well,
// however its writer bends the grammar.
func TestMultipart_ForgivingReadersFindNoOther(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	kinds := []string{
		"multipart/form-data; boundary=B", "multipart/form-data; boundary=B", "multipart/form-data; boundary=B", `multipart/form-data; boundary="B"`, "multipart/form-data;boundary=B", "multipart/form-data; charset=utf-8; boundary=B",
		"multipart/form-data; boundary=C; boundary=B", "multipart/form-data; xboundary=C; boundary=B", "multipart/form-data; boundary=B; x=\"boundary=C\"", "multipart/form-data; boundary=B,boundary=C", "multipart/mixed; boundary=B", "multipart/form-data; boundary=B;", "multipart/form-data; boundary=B; ;boundary=C",
	}
	heads := []string{
		`name="phone"`, `name="phone"`, `name="a"`, `name="a"`, `name=phone`, `name="a"; name="phone"`, `name="phone"; name="a"`, `name*=utf-8''phone`, `name="a"; name*=utf-8''phone`, `name="ph\one"`, `name="Phone"`, `name="phone[]"`,
		`name="a"; filename="x"`, `name="phone"; filename="x"`, `name="a"; filename="name=\"phone\""`, `NAME="phone"`, `name="a";filename=x; name="phone"`, `name="a"; filename="; name="phone"`,
	}
	ends := []string{"\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "\n", "\r", " \r\n"}
	marks := []string{"--B", "--B", "--B", "--B", "--B", "--C", "--BB", " --B", "--B--", ""}
	pick := func(from []string) string { return from[random.IntN(len(from))] }
	most := func(from []string) string { // the plain one, mostly
		if random.IntN(8) > 0 {
			return from[0]
		}
		return pick(from)
	}
	taken := 0
	for range rounds.Of(75_000) {
		var b strings.Builder
		for i := range random.IntN(4) {
			b.WriteString(most(marks) + most(ends) + "Content-Disposition: form-data; " + pick(heads) + most(ends))
			if random.IntN(20) == 0 {
				b.WriteString("Content-Transfer-Encoding: " + pick([]string{"base64", "8bit", "binary"}) + most(ends))
			}
			b.WriteString(most(ends) + string(rune('1'+i)) + most(ends))
		}
		b.WriteString(most(marks) + pick([]string{"--", "--", "--", ""}) + pick([]string{"", "\r\n", "\r\n", "x", "\r\n\r\n"}))
		kind, body := pick(kinds), b.String()
		got, err := extract(of("form:phone"), sends(kind, body))
		if err != nil {
			continue
		}
		taken++
		if all := looseForm(kind, body); !slices.Equal(all, []string{got}) {
			t.Fatalf("%s\n%q\nis %q; others find %q", kind, body, got, all)
		}
	}
	if taken < 500 {
		t.Errorf("only %d forms were taken", taken)
	}
}

// What common clients write is taken.
func TestMultipart_CommonClients(t *testing.T) {
	for client, c := range map[string]struct{ kind, body string }{
		"curl":     {"multipart/form-data; boundary=------------------------d74496d66958873e", "--------------------------d74496d66958873e\r\nContent-Disposition: form-data; name=\"phone\"\r\n\r\n1\r\n--------------------------d74496d66958873e--\r\n"},
		"browser":  {"multipart/form-data; boundary=----WebKitFormBoundary7MA4YWxkTrZu0gW", "------WebKitFormBoundary7MA4YWxkTrZu0gW\r\nContent-Disposition: form-data; name=\"f\"; filename=\"\u00e9 (1).png\"\r\nContent-Type: image/png\r\n\r\n\x89PNG\r\n\x1a\n\x00\r\n------WebKitFormBoundary7MA4YWxkTrZu0gW\r\nContent-Disposition: form-data; name=\"phone\"\r\n\r\n1\r\n------WebKitFormBoundary7MA4YWxkTrZu0gW--\r\n"},
		"OkHttp":   {"multipart/form-data; boundary=3cf2b0a6-8a3c-4d5b", "--3cf2b0a6-8a3c-4d5b\r\nContent-Disposition: form-data; name=\"phone\"\r\nContent-Length: 1\r\n\r\n1\r\n--3cf2b0a6-8a3c-4d5b--\r\n"},
		"Go":       {"multipart/form-data; boundary=0123456789abcdef", "--0123456789abcdef\r\nContent-Disposition: form-data; name=\"phone\"\r\n\r\n1\r\n--0123456789abcdef--\r\n"},
		"requests": {"multipart/form-data; boundary=0123456789abcdef", "--0123456789abcdef\r\nContent-Disposition: form-data; name=\"phone\"\r\n\r\n1\r\n--0123456789abcdef\r\nContent-Disposition: form-data; name=\"f\"; filename=\"a.txt\"\r\n\r\na\nb\r\n--0123456789abcdef--\r\n"},
		"Spring":   {"multipart/form-data;charset=UTF-8;boundary=aBc_-9", "--aBc_-9\r\nContent-Disposition: form-data; name=\"phone\"\r\nContent-Type: text/plain;charset=UTF-8\r\nContent-Length: 1\r\n\r\n1\r\n--aBc_-9--\r\n"},
		// MultipartFormDataContent of dotnet/runtime, src/libraries/System.Net.Http: tokens have no quotes.
		".NET": {`multipart/form-data; boundary="7e3b9a52-5d0f-4f3c-8a55-6a2c6f1d9b10"`, "--7e3b9a52-5d0f-4f3c-8a55-6a2c6f1d9b10\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Disposition: form-data; name=phone\r\n\r\n1\r\n--7e3b9a52-5d0f-4f3c-8a55-6a2c6f1d9b10\r\nContent-Disposition: form-data; name=photo; filename=a.png; filename*=utf-8''a.png\r\n\r\n\x89PNG\r\n--7e3b9a52-5d0f-4f3c-8a55-6a2c6f1d9b10--\r\n"},
		// FormBodyPartBuilder of apache/httpcomponents-client, httpmime 4.5, in strict mode.
		"Apache HttpClient 4": {"multipart/form-data; boundary=Jh-u_4eXx0kqXUu0sqJ5oTqk8bAd2mVb", "--Jh-u_4eXx0kqXUu0sqJ5oTqk8bAd2mVb\r\nContent-Disposition: form-data; name=\"phone\"\r\nContent-Type: text/plain; charset=ISO-8859-1\r\nContent-Transfer-Encoding: 8bit\r\n\r\n1\r\n--Jh-u_4eXx0kqXUu0sqJ5oTqk8bAd2mVb\r\nContent-Disposition: form-data; name=\"photo\"; filename=\"a.png\"\r\nContent-Type: application/octet-stream\r\nContent-Transfer-Encoding: binary\r\n\r\n\x89PNG\r\n--Jh-u_4eXx0kqXUu0sqJ5oTqk8bAd2mVb--\r\n"},
		// The same of httpclient5, HttpStrictMultipart.
		"Apache HttpClient 5": {"multipart/form-data; boundary=Jh-u_4eXx0kqXUu0sqJ5oTqk8bAd2mVb; charset=UTF-8", "--Jh-u_4eXx0kqXUu0sqJ5oTqk8bAd2mVb\r\nContent-Disposition: form-data; name=\"phone\"\r\nContent-Type: text/plain; charset=ISO-8859-1\r\n\r\n1\r\n--Jh-u_4eXx0kqXUu0sqJ5oTqk8bAd2mVb--\r\n"},
		// MultipartRequest of dart-lang/http, pkgs/http: boundaries may have a plus, and fields beyond ASCII say that they are binary.
		"Dart": {"multipart/form-data; boundary=dart-http-boundary-K+w_.1nRz0Qy8GmVb3kXo5uT7sJd2fHc9LpEaWiNqYrZvMgBtC4", "--dart-http-boundary-K+w_.1nRz0Qy8GmVb3kXo5uT7sJd2fHc9LpEaWiNqYrZvMgBtC4\r\ncontent-disposition: form-data; name=\"name\"\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-transfer-encoding: binary\r\n\r\nJ\u00fcrgen\r\n--dart-http-boundary-K+w_.1nRz0Qy8GmVb3kXo5uT7sJd2fHc9LpEaWiNqYrZvMgBtC4\r\ncontent-disposition: form-data; name=\"phone\"\r\n\r\n1\r\n--dart-http-boundary-K+w_.1nRz0Qy8GmVb3kXo5uT7sJd2fHc9LpEaWiNqYrZvMgBtC4--\r\n"},
	} {
		if got, err := extract(of("form:phone"), sends(c.kind, c.body)); err != nil || got != "1" {
			t.Errorf("%s: %q, %v; want it taken", client, got, err)
		}
	}
	wrong := "--B\r\nContent-Disposition: form-data; name=\"phone\"\r\nContent-Length: 2\r\n\r\n1\r\n--B--\r\n"
	if _, err := extract(of("form:phone"), sends("multipart/form-data; boundary=B", wrong)); err == nil {
		t.Error("a part that is shorter than it says was taken")
	}
}

//go:build readers

package readers

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A client is a body as a library writes it, with the number in phone_no.
type client struct {
	name  string
	route string
	kind  string
	body  func(number string) string
}

// clients are libraries whose forms differ from those of browsers, by their sources, and bodies of
// old clients.
func clients() []client {
	const guid, apache, dart = "7e3b9a52-5d0f-4f3c-8a55-6a2c6f1d9b10", "Jh-u_4eXx0kqXUu0sqJ5oTqk8bAd2mVb", "dart-http-boundary-K+w_.1nRz0Qy8GmVb3kXo5uT7sJd2fHc9LpEaWiNqYrZvMgBtC4"
	const d = "Content-Disposition: form-data; "
	parts := func(boundary string, all ...part) func(string) string {
		return func(number string) string {
			return strings.ReplaceAll(assemble(boundary, all), "NUMBER", number)
		}
	}
	text := func(body string) func(string) string {
		return func(number string) string { return strings.ReplaceAll(body, "NUMBER", number) }
	}
	return []client{
		// dotnet/runtime, src/libraries/System.Net.Http: MultipartFormDataContent with StringContent and ByteArrayContent.
		{".NET", "form", `multipart/form-data; boundary="` + guid + `"`, parts(guid,
			part{"Content-Type: text/plain; charset=utf-8\r\n" + d + "name=phone_no", "NUMBER"},
			part{d + "name=photo; filename=a.png; filename*=utf-8''a.png", "\x89PNG"})},
		// apache/httpcomponents-client, httpmime 4.5: FormBodyPartBuilder in strict mode.
		{"Apache HttpClient 4", "form", "multipart/form-data; boundary=" + apache, parts(apache,
			part{d + "name=\"phone_no\"\r\nContent-Type: text/plain; charset=ISO-8859-1\r\nContent-Transfer-Encoding: 8bit", "NUMBER"},
			part{d + "name=\"photo\"; filename=\"a.png\"\r\nContent-Type: application/octet-stream\r\nContent-Transfer-Encoding: binary", "\x89PNG"})},
		// The same, httpclient5: HttpStrictMultipart.
		{"Apache HttpClient 5", "form", "multipart/form-data; boundary=" + apache + "; charset=UTF-8", parts(apache,
			part{d + "name=\"phone_no\"\r\nContent-Type: text/plain; charset=ISO-8859-1", "NUMBER"})},
		// dart-lang/http, pkgs/http: MultipartRequest.
		{"Dart", "form", "multipart/form-data; boundary=" + dart, parts(dart,
			part{"content-disposition: form-data; name=\"name\"\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-transfer-encoding: binary", "J\u00fcrgen"},
			part{"content-disposition: form-data; name=\"phone_no\"", "NUMBER"})},
		{"a semicolon after the boundary", "form", "multipart/form-data; boundary=xyz;", parts("xyz", part{d + `name="phone_no"`, "NUMBER"})},
		{"a line break after the form", "form", urlencoded, text("x=1&phone_no=NUMBER\r\n")},
		{"a form in ASCII", "form", urlencoded + "; charset=us-ascii", text("phone_no=NUMBER")},
		{"a byte order mark", "json", "application/json", text("\ufeff{\"phone_no\":\"NUMBER\"}")},
		{"text/json", "json", "text/json", text(`{"phone_no":"NUMBER"}`)},
		{"JSON in ASCII", "json", "application/json; charset=us-ascii", text(`{"phone_no":"NUMBER"}`)},
	}
}

// What these clients write is accepted and counted under the number that the reader reads, if it
// reads the body at all.
func TestReaders_ReadWhatClientsWrite(t *testing.T) {
	for _, r := range readers() {
		t.Run(r.name, func(t *testing.T) {
			upstream := r.start(t)
			weir := through(t, upstream)
			var unread []string
			for i, c := range clients() {
				number := fmt.Sprintf("1320000%04d", i)
				write := func() (answer, error) {
					m := request("POST", "/v1/"+c.route)
					m.form(c.kind, c.body(number))
					return send(weir, m)
				}
				a, err := write()
				if err != nil || a.status == 429 {
					t.Errorf("%s got %d, %v; want the reader's answer", c.name, a.status, err)
				}
				if len(a.read[c.route]) == 0 {
					unread = append(unread, c.name)
				}
				for _, text := range a.read[c.route] {
					if !slices.Contains(digits(text), number) {
						t.Errorf("%s: the reader read %q, want %s", c.name, text, number)
					}
				}
				if a, err := write(); err != nil || a.status != 429 {
					t.Errorf("%s a second time got %d, %v; want 429: the first was counted", c.name, a.status, err)
				}
			}
			fmt.Printf("%-20s of %d clients did not read %q\n", r.name, len(clients()), unread)
			if len(unread) > len(clients())-3 {
				t.Errorf("the reader read only what %d clients write, which shows little", len(clients())-len(unread))
			}
		})
	}
}

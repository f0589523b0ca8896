package key

import (
	"bytes"
	"fmt"
	"mime"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// urlencodedType is the media type of a URL-encoded form.
const urlencodedType = "application/x-www-form-urlencoded"

// decodedBody returns the body of a request with one Content-Type and no content coding.
func decodedBody(r Request) (Body, error) {
	body, err := r.Body()
	if err != nil || len(body.Bytes) == 0 {
		return Body{}, err
	}
	if len(r.Header("Content-Type")) > 1 {
		return Body{}, fmt.Errorf("%w: Content-Type", ErrAmbiguous)
	}
	for _, encoding := range r.Header("Content-Encoding") {
		if encoding != "" && !strings.EqualFold(encoding, "identity") {
			return Body{}, fmt.Errorf("%w: the body is encoded; send it without Content-Encoding", ErrAmbiguous)
		}
	}
	return body, nil
}

// media returns the media type of the body. A malformed one is ErrAmbiguous, because some
// servers parse only its beginning. So is a charset other than UTF-8, because keys are read
// as UTF-8, unless the body has only ASCII, which is the same in both.
func (b Body) media() (string, error) {
	if b.Type == "" { // Rack reads a form
		return "", fmt.Errorf("%w: Content-Type is missing", ErrAmbiguous)
	}
	kind, parameters, err := mime.ParseMediaType(b.Type)
	if err != nil {
		return "", fmt.Errorf("%w: Content-Type is malformed", ErrAmbiguous)
	}
	if charset, ok := parameters["charset"]; ok && !isUTF8(charset) && !(extendsASCII(charset) && b.isASCII(kind)) {
		return "", fmt.Errorf("%w: the charset of Content-Type is not UTF-8, nor is the body ASCII", ErrAmbiguous)
	}
	return kind, nil
}

// isUTF8 reports whether charset is a usual name of UTF-8.
func isUTF8(charset string) bool {
	return strings.EqualFold(charset, "utf-8") || strings.EqualFold(charset, "utf8")
}

// extendsASCII reports whether ASCII bytes in charset are what they are in UTF-8. They are
// not in UTF-16 or UTF-7.
func extendsASCII(charset string) bool {
	return strings.EqualFold(charset, "us-ascii") || strings.EqualFold(charset, "iso-8859-1")
}

// isASCII reports whether the body has only ASCII characters, also behind the escapes of a
// URL-encoded form.
func (b Body) isASCII(kind string) bool {
	for i, c := range b.Bytes {
		escaped := c == '%' && kind == urlencodedType && i+1 < len(b.Bytes)
		if c >= utf8.RuneSelf || escaped && b.Bytes[i+1] > '7' {
			return false
		}
	}
	return true
}

// json returns the document in the body, without a byte order mark: servers skip one, or
// refuse it. It returns an error unless the media type is JSON.
func (b Body) json() ([]byte, error) {
	doc := bytes.TrimPrefix(b.Bytes, []byte("\ufeff"))
	if b.Type == "application/json" {
		return doc, nil
	}
	kind, err := b.media()
	if err != nil {
		return nil, err
	}
	if kind != "application/json" && kind != "text/json" &&
		!(strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json")) {
		return nil, fmt.Errorf("%w: Content-Type is not application/json", ErrInvalid)
	}
	return doc, nil
}

// checkOneSource returns an error if o is in the query or in the body, and the request may also
// have it in the other of the two: many servers merge them. A key that compares both is read
// from both. A query parameter is not looked for in JSON.
func (s *Spec) checkOneSource(o *Origin, r Request) error {
	other, ok := o.Confused()
	switch {
	case !ok, s.From == other, slices.Contains(s.Equal, other):
	case o.Source.IsBody() && (r.Confused(other) || len(r.Query(other.Name)) > 0):
		return fmt.Errorf("%w: it is in the query instead of the body; some servers merge both", ErrAmbiguous)
	case !o.Source.IsBody() && r.Confused(other):
		return fmt.Errorf("%w: the body is a form, in which some servers look for it too", ErrAmbiguous)
	}
	return nil
}

// form returns the only value of a form field, "" if there is none.
func (b Body) form(name string) (f result, err error) {
	kind, err := b.media()
	if err != nil {
		return result{}, err
	}
	fields := field{name: name, names: NameSet{}.With(name)}
	switch kind {
	case urlencodedType:
		err = fields.urlencoded(b.Bytes)
	case "multipart/form-data":
		err = fields.multipart(b)
	default:
		err = fmt.Errorf("%w: Content-Type is not that of a form", ErrInvalid)
	}
	if err != nil {
		return result{}, err
	}
	f.text, err = single(fields.values)
	if kind == urlencodedType && bytes.HasSuffix(b.Bytes, []byte(lineBreak)) {
		f.text, f.lineBreak = strings.CutSuffix(f.text, lineBreak)
	}
	return f, err
}

// lineBreak is at the end of the forms of some old clients. Most servers read it as the end
// of the last value.
const lineBreak = "\r\n"

// A field collects the values of a form field.
type field struct {
	name   string
	names  NameSet // name, with its other readings
	values []string
}

// urlencoded parses a URL-encoded form with & as separator. A semicolon, which some servers
// treat as a separator too, and an invalid escape are ErrAmbiguous.
func (f *field) urlencoded(body []byte) error {
	all, err := url.ParseQuery(string(body))
	if err != nil {
		return fmt.Errorf("%w: the form has a %% that is not a valid escape, or a semicolon", ErrAmbiguous)
	}
	for name, values := range all {
		for _, value := range values {
			if err := f.collect(name, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// collect adds value if name is that of the field.
func (f *field) collect(name, value string) error {
	switch {
	case len(f.names.Confused(nil, name)) > 0:
		return fmt.Errorf("%w: some servers read another form field as this one", ErrAmbiguous)
	case name != f.name:
		return nil
	}
	f.values = append(f.values, value)
	return nil
}

// The subset of RFC 7578 that all servers parse in the same way.
var (
	// multipartType has one boundary of characters that need no quotes, of any length, and
	// nothing else in which PHP could find the word. Two counts up to maxBoundary in it
	// would take 150 KB when a program starts.
	multipartType = regexp.MustCompile(`^(?i:multipart/form-data)` + charsets +
		`; ?(?i:boundary)=(?:"([0-9A-Za-z_.+-]+)"|([0-9A-Za-z_.+-]+))` + charsets + `;?$`)
	// disposition has a name and at most a file's name, which may be there in the form of
	// RFC 5987 as well. In neither is anything that is escaped, with a backslash or, "=?",
	// as RFC 2047 does. A name without quotes has only characters that need none.
	disposition = regexp.MustCompile(`^(?i:form-data); ?(?i:name)=(?:"([^"\\\x00-\x1f\x7f]+)"|([0-9A-Za-z_.-]+))` +
		`(; ?(?i:filename)=(?:"[^"\\\x00-\x1f\x7f]*"|` +
		`[0-9A-Za-z_.+-]+)(?:; ?(?i:filename\*=utf-8)''[0-9A-Za-z_.+%-]+)?)?$`)
	plainPart = regexp.MustCompile(`^(?i:text/plain)(?i:; ?charset="?(utf-?8|us-ascii|iso-8859-1)"?)?$`)
)

// charsets are those of which Body.media accepts the bytes.
const charsets = `(?i:; ?charset="?(?:utf-?8|us-ascii|iso-8859-1)"?)?`

const (
	// maxPartHeader is how many fields a part may have.
	maxPartHeader = 4
	maxBoundary   = 70 // characters: RFC 2046, section 5.1.1
)

// A partHeader is the parsed header of a part.
type partHeader struct {
	name   string
	file   bool
	kind   string // "" for plain text
	length string // "" if it does not say
	coding string // Content-Transfer-Encoding, "" if it does not say
}

// multipart parses a multipart form. Any deviation from the strict grammar is ErrAmbiguous,
// wherever it is in the form: what one server reads as text of a part, or as another part,
// another server reads as the field.
func (f *field) multipart(body Body) error {
	match := multipartType.FindStringSubmatch(body.Type)
	if match == nil || len(match[1]+match[2]) > maxBoundary {
		return ambiguousForm("Content-Type has not one plain boundary")
	}
	delimiter := []byte("--" + match[1] + match[2])
	rest, ok := bytes.CutPrefix(body.Bytes, delimiter)
	if !ok {
		return ambiguousForm("it does not begin with its boundary")
	}
	for delimiters := 1; ; delimiters++ {
		switch string(rest) {
		case "--", "--\r\n":
			if bytes.Count(body.Bytes, delimiter) != delimiters {
				return ambiguousForm("something else in it looks like its boundary")
			}
			return nil
		}
		if rest, ok = bytes.CutPrefix(rest, []byte("\r\n")); !ok {
			return ambiguousForm("something follows a boundary")
		}
		header, content, ok := bytes.Cut(rest, []byte("\r\n\r\n"))
		if !ok {
			return ambiguousForm("a part has no end")
		}
		var text []byte
		text, rest, ok = bytes.Cut(content, append([]byte("\r\n"), delimiter...))
		if !ok {
			return ambiguousForm("it does not end with its boundary")
		}
		if err := f.part(string(header), text); err != nil {
			return err
		}
	}
}

// ambiguousForm reports a deviation from the strict grammar.
func ambiguousForm(why string) error {
	return fmt.Errorf("%w: a multipart form that servers read differently: %s", ErrAmbiguous, why)
}

// part parses one part.
func (f *field) part(header string, text []byte) error {
	h, err := readPartHeader(header)
	switch {
	case err != nil:
		return err
	case h.length != "" && h.length != strconv.Itoa(len(text)):
		return ambiguousForm("a part is not as long as it says")
	case h.name != f.name:
		return f.collect(h.name, "")
	case h.file, !h.isPlain(text):
		return fmt.Errorf("%w: the form field is a file, or not plain text", ErrAmbiguous)
	}
	return f.collect(h.name, string(text))
}

// isPlain reports whether text is plain text in the charset that the part says.
func (h *partHeader) isPlain(text []byte) bool {
	if h.kind == "" {
		return true
	}
	match := plainPart.FindStringSubmatch(h.kind)
	return match != nil && (match[1] == "" || isUTF8(match[1]) || Body{Bytes: text}.isASCII(""))
}

// readPartHeader parses the header of a part. Repeated fields are errors.
func readPartHeader(header string) (h partHeader, err error) {
	lines := strings.Split(header, "\r\n")
	if len(lines) > maxPartHeader {
		return h, ambiguousForm("a part has other fields than one needs")
	}
	for _, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		if !ok || value == "" || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return h, ambiguousForm("a field of a part is broken or empty")
		}
		switch {
		case strings.EqualFold(name, "Content-Disposition") && h.name == "":
			match := disposition.FindStringSubmatch(value)
			if match == nil || strings.Contains(value, "=?") {
				return h, ambiguousForm("a part has not one plain name")
			}
			h.name, h.file = match[1]+match[2], match[3] != ""
		case strings.EqualFold(name, "Content-Type") && h.kind == "":
			if h.kind = value; strings.HasPrefix(strings.ToLower(value), "multipart/") {
				return h, ambiguousForm("a form in a part")
			}
		case strings.EqualFold(name, "Content-Length") && h.length == "":
			h.length = value
		case strings.EqualFold(name, "Content-Transfer-Encoding") && h.coding == "":
			if h.coding = strings.ToLower(value); !slices.Contains([]string{"7bit", "8bit", "binary"}, h.coding) {
				return h, ambiguousForm("a part is encoded")
			}
		default:
			return h, ambiguousForm("a part has other fields than one needs")
		}
	}
	if h.name == "" {
		return h, ambiguousForm("a part has no name")
	}
	return h, nil
}

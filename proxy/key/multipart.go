package key

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The subset of RFC 7578 that all servers parse in the same way.
var (
	// multipartType has one boundary of characters that need no quotes, of any length, and
	// nothing else in which PHP could find the word. Two counts up to maxBoundary in it
	// would take 150 KB when a program starts.
	multipartType = regexp.MustCompile(`^(?i:multipart/form-data)` + charsets + `; ?(?i:boundary)=(?:"([0-9A-Za-z_.+-]+)"|([0-9A-Za-z_.+-]+))` + charsets + `;?$`)
	// disposition has a name and at most a file's name, which may be there in the form of
	// RFC 5987 as well. In neither is anything that is escaped, with a backslash or, "=?",
	// as RFC 2047 does. A name without quotes has only characters that need none.
	disposition = regexp.MustCompile(`^(?i:form-data); ?(?i:name)=(?:"([^"\\\x00-\x1f\x7f]+)"|([0-9A-Za-z_.-]+))` +
		`(; ?(?i:filename)=(?:"[^"\\\x00-\x1f\x7f]*"|[0-9A-Za-z_.+-]+)(?:; ?(?i:filename\*=utf-8)''[0-9A-Za-z_.+%-]+)?)?$`)
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

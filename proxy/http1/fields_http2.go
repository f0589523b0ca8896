package http1

// Errors in a request that was received over HTTP/2.
var (
	ErrPseudoField     = &Error{400, "pseudo-header fields not valid"}
	ErrConnectionField = &Error{400, "field of the connection in HTTP/2"}
	ErrProtocol        = &Error{501, "protocol of CONNECT not supported"}
)

// AddHTTP2 adds a line that was received over HTTP/2 (RFC 9113 section 8.2.1). It copies
// name and value, and stores the line in the form in which Head writes it in HTTP/1.1, so
// that forwarding it costs a copy. It returns ErrFieldName if the name is not a token in
// lower case, and ErrFieldValue if the value contains a control character or begins or
// ends with whitespace. f must contain no lines that were parsed.
func (f *Fields) AddHTTP2(name, value string) error {
	if name == "" || !allOf(name, tokenChar) || hasUpper(name) {
		return ErrFieldName
	}
	if v := bytesOf(value); valueLength(v) < len(v) || len(trim(value)) < len(value) {
		return ErrFieldValue
	}
	n := nameOf(name)
	from := uint32(len(f.buf))
	buf := f.buf
	if n != Other {
		buf = append(buf, n.String()...)
	} else {
		buf = appendCanonical(buf, name)
		f.unusualNames = f.unusualNames || !allOf(name, plainChar)
	}
	colon := uint32(len(buf))
	buf = append(buf, ": "...)
	at := uint32(len(buf))
	buf = append(buf, value...)
	f.lines = append(f.lines, fieldLine{name: from, nameEnd: colon, value: at, valueEnd: uint32(len(buf)), id: n, generated: true})
	f.buf = append(buf, "\r\n"...)
	f.present |= 1 << n
	return nil
}

// Emptied returns fields without lines that reuse the memory of f, if f was filled by
// AddHTTP2: at most max bytes of it. f must not be used any more.
func (f *Fields) Emptied(max int) Fields {
	empty := f.emptied()
	if buf := RecycleBuffer(f.buf); cap(buf) <= max {
		empty.buf = buf
	}
	return empty
}

// AddedName returns the Name of the line that was added last.
func (f *Fields) AddedName() Name { return f.lines[len(f.lines)-1].id }

// LookupName returns the Name of a field name in any case, or Other.
func LookupName(name string) Name { return nameOf(name) }

// ValidAuthority reports whether s is a host with an optional port and without user
// information.
func ValidAuthority(s string) bool { return validAuthority(s) }

// ValidMethod reports whether s may be the method of a request.
func ValidMethod(s string) bool { return s != "" && len(s) <= maxMethod && allOf(s, tokenChar) }

// ValidTarget reports whether s consists of characters that are allowed in a request
// target.
func ValidTarget(s string) bool { return allOf(s, targetChar) }

// ValidName reports whether s may be the name of a field.
func ValidName(s string) bool { return s != "" && allOf(s, tokenChar) }

// ValidValue reports whether s may be a field value.
func ValidValue(s string) bool { return valueLength(bytesOf(s)) == len(s) }

func hasUpper(s string) bool {
	for i := range len(s) {
		if 'A' <= s[i] && s[i] <= 'Z' {
			return true
		}
	}
	return false
}

// appendCanonical appends a name with its first letter, and each letter after a hyphen,
// in upper case, as in X-Request-Id.
func appendCanonical(buf []byte, name string) []byte {
	first := true
	for i := range len(name) {
		c := name[i]
		if first && 'a' <= c && c <= 'z' {
			c -= 'a' - 'A'
		}
		buf, first = append(buf, c), c == '-'
	}
	return buf
}

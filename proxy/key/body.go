package key

import (
	"bytes"
	"fmt"
	"mime"
	"strings"
	"unicode/utf8"
)

// urlencodedType is the media type of a URL-encoded form.
const urlencodedType = "application/x-www-form-urlencoded"

// decodedBody returns the body of a request with one Content-Type and no content coding.
func decodedBody(r Request, m Message) (Body, error) {
	body, err := m.Body()
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
	if b.Type == "" {
		return "", fmt.Errorf("%w: Content-Type is missing", ErrInvalid)
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
	if kind != "application/json" && kind != "text/json" && !(strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json")) {
		return nil, fmt.Errorf("%w: Content-Type is not application/json", ErrInvalid)
	}
	return doc, nil
}

package key

import (
	"bytes"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"strings"
)

// multipart reads a form whose fields are parts of their own (RFC 7578). Parts
// of which servers make different things are ErrInvalid: text before the first
// boundary, lines that end without a carriage return, a name given twice or in
// the notation of RFC 2231, a file or an encoding where a plain value is due, a
// form that does not end with its last boundary.
func (f *field) multipart(body []byte, boundary string) error {
	start := []byte("--" + boundary)
	first, ok := bytes.CutPrefix(bytes.TrimPrefix(body, []byte("\r\n")), start)
	if boundary == "" || !ok || !bytes.HasPrefix(first, []byte("\r\n")) && !bytes.HasPrefix(first, []byte("--")) {
		return fmt.Errorf("%w: the form does not begin with its boundary", ErrInvalid)
	}
	if end := string(bytes.TrimRight(body, "\r\n")); !strings.HasSuffix("\r\n"+end, "\r\n--"+boundary+"--") {
		return fmt.Errorf("%w: the form does not end with its boundary", ErrInvalid)
	}
	for parts := multipart.NewReader(bytes.NewReader(body), boundary); ; {
		part, err := parts.NextRawPart()
		if err == io.EOF { // wrapped, it says that the form was cut off
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: the form is broken or cut off", ErrInvalid)
		}
		if err := f.part(part); err != nil {
			return err
		}
	}
}

// part reads one part of a form.
func (f *field) part(part *multipart.Part) error {
	dispositions := part.Header["Content-Disposition"]
	if len(dispositions) != 1 {
		return fmt.Errorf("%w: a part of the form has not one Content-Disposition", ErrInvalid)
	}
	kind, parameters, err := mime.ParseMediaType(dispositions[0])
	if err != nil || kind != "form-data" || strings.Contains(strings.ToLower(dispositions[0]), "name*") {
		return fmt.Errorf("%w: the name of a part of the form can be read in two ways", ErrInvalid)
	}
	name := parameters["name"]
	if name != f.name {
		return f.meet(name, "")
	}
	if err := plain(part, parameters); err != nil {
		return err
	}
	value, err := io.ReadAll(part)
	if err != nil {
		return fmt.Errorf("%w: the form is broken or cut off", ErrInvalid)
	}
	return f.meet(name, string(value))
}

// plain returns an error if a part is not simply its text.
func plain(part *multipart.Part, parameters map[string]string) error {
	if _, file := parameters["filename"]; file {
		return fmt.Errorf("%w: in the form it is a file", ErrInvalid)
	}
	for _, encoding := range part.Header["Content-Transfer-Encoding"] {
		if e := strings.ToLower(encoding); e != "7bit" && e != "8bit" && e != "binary" {
			return fmt.Errorf("%w: in the form it is encoded", ErrInvalid)
		}
	}
	for _, t := range part.Header["Content-Type"] {
		if kind, _, err := (Body{Type: t}).media(); err != nil || kind != "text/plain" {
			return fmt.Errorf("%w: in the form it is no plain text", ErrInvalid)
		}
	}
	return nil
}

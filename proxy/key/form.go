package key

import (
	"bytes"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// checkOneSource returns an error if o is a query parameter or a form field, and the
// request may also have it in the other of the two: many servers merge them. A key that
// compares both is read from both.
func (s *Spec) checkOneSource(o Origin, r Request) error {
	other, ok := o.Confused()
	if !ok {
		return nil // as most
	}
	switch {
	case s.isReadAt(other):
	case o.Source == Form && (r.Confused(other) || len(r.Query(o.Name)) > 0):
		return fmt.Errorf("%w: it is in the query instead of the form; some servers merge both", ErrAmbiguous)
	case o.Source != Form && r.Confused(other):
		return fmt.Errorf("%w: the body is a form, in which some servers look for it too", ErrAmbiguous)
	}
	return nil
}

// isReadAt reports whether s is read at o, too.
func (s *Spec) isReadAt(o Origin) bool { return s.From == o || slices.Contains(s.Equal, o) }

// form returns the only value of a form field, "" if there is none.
func form(r Request, m Message, name string) (f result, err error) {
	body, err := decodedBody(r, m)
	if err != nil || len(body.Bytes) == 0 {
		return result{}, err
	}
	kind, err := body.media()
	if err != nil {
		return result{}, err
	}
	fields := field{name: name, names: NameSet{}.With(name)}
	switch kind {
	case urlencodedType:
		err = fields.urlencoded(body.Bytes)
	case "multipart/form-data":
		err = fields.multipart(body)
	default:
		err = fmt.Errorf("%w: Content-Type is not that of a form", ErrInvalid)
	}
	if err != nil {
		return result{}, err
	}
	f.text, err = single(fields.values)
	if kind == urlencodedType && bytes.HasSuffix(body.Bytes, []byte(lineBreak)) {
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

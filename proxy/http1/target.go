package http1

// splitTarget determines the form of the request target and its parts (RFC 9112 section
// 3.2). It decodes nothing, and rejects a target of an unknown form.
func (r *Request) splitTarget() error {
	t := r.target
	raw := r.buf[t.from:t.to]
	switch {
	case string(r.buf[:r.method.to]) == "CONNECT":
		return ErrConnect
	case raw[0] == '/':
		r.path = t
	case string(raw) == "*":
		if string(r.buf[:r.method.to]) != "OPTIONS" {
			return ErrTarget
		}
		r.path = t
	default:
		return r.splitAbsolute(t.in(r.buf))
	}
	r.findQuery()
	return nil
}

// splitAbsolute splits a target in absolute form, http://authority/path?query. Its
// authority takes precedence over Host (RFC 9112 section 3.2.2).
func (r *Request) splitAbsolute(raw string) error {
	from := schemeLength(raw)
	if from == 0 {
		return ErrTarget
	}
	end := from
	for end < len(raw) && raw[end] != '/' && raw[end] != '?' {
		end++
	}
	if !validAuthority(raw[from:end]) {
		return ErrTarget
	}
	at := r.target.from
	r.authority = span{at + uint32(from), at + uint32(end)}
	r.path = span{at + uint32(end), r.target.to}
	r.findQuery()
	return nil
}

// schemeLength returns the length of "http://" or "https://" at the beginning of raw,
// or 0.
func schemeLength(raw string) int {
	for _, scheme := range [...]string{"http://", "https://"} {
		if len(raw) > len(scheme) && equalFoldLower(raw[:len(scheme)], scheme) {
			return len(scheme)
		}
	}
	return 0
}

func (r *Request) findQuery() {
	r.query = -1
	for i, c := range r.buf[r.path.from:r.path.to] {
		if c == '?' {
			r.query = i
			return
		}
	}
}

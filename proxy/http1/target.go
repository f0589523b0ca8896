package http1

// splitTarget finds out which form the target has (RFC 9112 section 3.2), and
// its parts. Nothing is decoded: what is not of a known form is refused, so that
// nobody takes a part of it for something else.
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
		return r.splitAbsolute(raw)
	}
	r.findQuery()
	return nil
}

// splitAbsolute splits http://authority/path?query. The authority goes before
// Host (section 3.2.2).
func (r *Request) splitAbsolute(raw []byte) error {
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

// schemeLength is the length of "http://" or "https://" at the beginning of raw,
// 0 if there is neither.
func schemeLength(raw []byte) int {
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

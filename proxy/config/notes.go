package config

// Notes returns remarks for operators about a valid configuration: guarantees that are
// weaker than they could be.
func (c *Config) Notes() []string {
	var notes []string
	switch {
	case c.Privacy.HashSecret != "":
	case c.Store == StoreRedis:
		notes = append(notes, "privacy.hash_secret is not set: whoever reads Redis can find out what names of keys stand for, phone numbers for example, by trying all; hashes in logs have a salt that is kept in Redis")
	default:
		notes = append(notes, "privacy.hash_secret is not set: hashes in logs have a salt that is made at each start, so that a key looks different in the log after one")
	}
	if c.Store == StoreMemory {
		notes = append(notes, "store: memory counts 1000000 keys at a time; once half of them are in use, one client address gets at most an eighth for new keys, and what it brings beyond that shares one count")
	}
	if note := c.formNote(); note != "" {
		notes = append(notes, note)
	}
	return notes
}

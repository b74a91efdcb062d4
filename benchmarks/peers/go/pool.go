package main

import (
	"encoding/binary"
	"os"
)

// The records to produce: for each the lengths of key and value, 4 bytes big endian, then both.
type pool struct {
	keys, values [][]byte
}

func readPool(path string) (pool, error) {
	var found pool
	text, err := os.ReadFile(path)
	for err == nil && len(text) > 0 {
		key, value := binary.BigEndian.Uint32(text), binary.BigEndian.Uint32(text[4:])
		text = text[8:]
		found.keys = append(found.keys, text[:key:key])
		found.values = append(found.values, text[key:key+value:key+value])
		text = text[key+value:]
	}
	return found, err
}

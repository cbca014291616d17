// SPDX-License-Identifier: MIT
/*  byte_tokenizer.h - a tokenizer of single bytes, and <end>, which is 256, with a chat template, in a folder */
#ifndef BYTE_TOKENIZER_H
#define BYTE_TOKENIZER_H

static inline void write_tokenizer(const char *folder)
{
    char path[256];
    FILE *file;
    int byte, next = 256;
    snprintf(path, sizeof path, "%.200s/tokenizer.json", folder);
    file = fopen(path, "wb");
    if (!file)
        abort();
    fprintf(file, "{\"version\": \"1.0\", \"added_tokens\": [{\"id\": 256, \"content\": \"<end>\", \"single_word\": "
                  "false, \"lstrip\": false, "
                  "\"rstrip\": false, \"normalized\": false, \"special\": true}], \"normalizer\": null, "
                  "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
                  "\"use_regex\": true}, "
                  "\"post_processor\": null, \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
                  "\"trim_offsets\": true, "
                  "\"use_regex\": true}, \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, "
                  "\"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, \"fuse_unk\": false, "
                  "\"byte_fallback\": false, "
                  "\"vocab\": {");
    for (byte = 0; byte < 256; byte++) {
        bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
        fprintf(file, "%s\"\\u%04x\": %d", byte ? ", " : "", (unsigned)(itself ? byte : next++), byte);
    }
    fprintf(file, ", \"<end>\": 256}, \"merges\": []}}\n");
    fclose(file);
    snprintf(path, sizeof path, "%.200s/tokenizer_config.json", folder);
    file = fopen(path, "wb");
    if (!file)
        abort();
    fprintf(file, "{\"chat_template\": \"{%% for m in messages %%}[{{ m.role }}]{{ m.content }}<end>{%% endfor %%}"
                  "{%% if add_generation_prompt %%}H{%% endif %%}\"}\n");
    fclose(file);
}

#endif /* BYTE_TOKENIZER_H */

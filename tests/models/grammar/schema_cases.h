// SPDX-License-Identifier: MIT
/*  schema_cases.h - written by schema_compare.py --write: schemas, and texts that fit or do not */
static const struct schema_case {
    const char *schema, *text;
    bool fits;
} schema_cases[] = {
    {"{\"type\":[\"integer\",\"null\"]}", "1", true},
    {"{\"type\":[\"integer\",\"null\"]}", "0", true},
    {"{\"type\":[\"integer\",\"null\"]}", "\"-.\"", false},
    {"{\"type\":[\"integer\",\"null\"]}", "-81.6", false},
    {"{\"enum\":[null,76,-19],\"minLength\":2,\"type\":[\"string\",\"null\"]}", "null", true},
    {"{\"enum\":[null,76,-19],\"minLength\":2,\"type\":[\"string\",\"null\"]}", "null", true},
    {"{\"enum\":[null,76,-19],\"minLength\":2,\"type\":[\"string\",\"null\"]}", "[]", false},
    {"{\"enum\":[null,76,-19],\"minLength\":2,\"type\":[\"string\",\"null\"]}", "-13", false},
    {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":4}", "\"X\xcf\xb2 ^\"", true},
    {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":4}", "\"yP/\"", true},
    {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":4}", "\"\"", false},
    {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":4}", "\"\\\\\"", false},
    {"{\"type\":\"string\",\"pattern\":\"^\\\\S+ \\\\S+$\",\"minLength\":1,\"maxLength\":5}", "\"G&: \xc8\x90\"", true},
    {"{\"type\":\"string\",\"pattern\":\"^\\\\S+ \\\\S+$\",\"minLength\":1,\"maxLength\":5}",
     "\"\xca\x81\xee\xb4\x86m (\"", true},
    {"{\"type\":\"string\",\"pattern\":\"^\\\\S+ \\\\S+$\",\"minLength\":1,\"maxLength\":5}", "\"\"", false},
    {"{\"type\":\"string\",\"pattern\":\"^\\\\S+ \\\\S+$\",\"minLength\":1,\"maxLength\":5}", "\"0\\n\"", false},
    {"{\"type\":\"string\",\"format\":\"uuid\"}", "\"b0c63E23-2D90-B4C0-790c-940eedd000a0\"", true},
    {"{\"type\":\"string\",\"format\":\"uuid\"}", "\"84670F05-D51b-27fD-3c26-ea5c568c0002\"", true},
    {"{\"type\":\"string\",\"format\":\"uuid\"}", "\"00\"", false},
    {"{\"type\":\"string\",\"format\":\"uuid\"}", "\"0/\xf0\x9f\x98\x80\xc3\xa9\\n0\"", false},
    {"{\"type\":\"integer\",\"exclusiveMinimum\":-1,\"maximum\":1}", "1", true},
    {"{\"type\":\"integer\",\"exclusiveMinimum\":-1,\"maximum\":1}", "0", true},
    {"{\"type\":\"integer\",\"exclusiveMinimum\":-1,\"maximum\":1}", "true", false},
    {"{\"type\":\"integer\",\"exclusiveMinimum\":-1,\"maximum\":1}", "\"\\n\\\\\"", false},
    {"{\"type\":\"number\",\"minimum\":1,\"maximum\":34972258038856354}", "8605", true},
    {"{\"type\":\"number\",\"minimum\":1,\"maximum\":34972258038856354}", "71240708", true},
    {"{\"type\":\"number\",\"minimum\":1,\"maximum\":34972258038856354}", "-1", false},
    {"{\"type\":\"number\",\"minimum\":1,\"maximum\":34972258038856354}", "0", false},
    {"{\"type\":\"number\",\"multipleOf\":2.5,\"maximum\":1066}", "5", true},
    {"{\"type\":\"number\",\"multipleOf\":2.5,\"maximum\":1066}", "0.0", true},
    {"{\"type\":\"number\",\"multipleOf\":2.5,\"maximum\":1066}", "17.8", false},
    {"{\"type\":\"number\",\"multipleOf\":2.5,\"maximum\":1066}", "17.801", false},
    {"{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"key\":{\"type\":\"array\",\"items\":{"
     "\"type\":\"integer\",\"maximum\":-1},\"minItems\":0,\"maxItems\":1}},\"required\":[\"ab\"],"
     "\"additionalProperties\":false},\"minItems\":0,\"maxItems\":1}",
     "[]", true},
    {"{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"key\":{\"type\":\"array\",\"items\":{"
     "\"type\":\"integer\",\"maximum\":-1},\"minItems\":0,\"maxItems\":1}},\"required\":[\"ab\"],"
     "\"additionalProperties\":false},\"minItems\":0,\"maxItems\":1}",
     "[\x0a]", true},
    {"{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"key\":{\"type\":\"array\",\"items\":{"
     "\"type\":\"integer\",\"maximum\":-1},\"minItems\":0,\"maxItems\":1}},\"required\":[\"ab\"],"
     "\"additionalProperties\":false},\"minItems\":0,\"maxItems\":1}",
     "48.5", false},
    {"{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"key\":{\"type\":\"array\",\"items\":{"
     "\"type\":\"integer\",\"maximum\":-1},\"minItems\":0,\"maxItems\":1}},\"required\":[\"ab\"],"
     "\"additionalProperties\":false},\"minItems\":0,\"maxItems\":1}",
     "48.501", false},
    {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\",\"minimum\":0.001,\"maximum\":1473581265475304},{"
     "\"type\":\"number\",\"minimum\":8,\"exclusiveMaximum\":8.37},{\"type\":\"string\",\"pattern\":\"b\"}],\"items\":"
     "false,\"minItems\":1}",
     "[ 6,8]", true},
    {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\",\"minimum\":0.001,\"maximum\":1473581265475304},{"
     "\"type\":\"number\",\"minimum\":8,\"exclusiveMaximum\":8.37},{\"type\":\"string\",\"pattern\":\"b\"}],\"items\":"
     "false,\"minItems\":1}",
     "[ 40,\x0a"
     "8]",
     true},
    {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\",\"minimum\":0.001,\"maximum\":1473581265475304},{"
     "\"type\":\"number\",\"minimum\":8,\"exclusiveMaximum\":8.37},{\"type\":\"string\",\"pattern\":\"b\"}],\"items\":"
     "false,\"minItems\":1}",
     "[]", false},
    {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\",\"minimum\":0.001,\"maximum\":1473581265475304},{"
     "\"type\":\"number\",\"minimum\":8,\"exclusiveMaximum\":8.37},{\"type\":\"string\",\"pattern\":\"b\"}],\"items\":"
     "false,\"minItems\":1}",
     "false", false},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":[[],[],false,false,[null,null]]}}", "[]", true},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":[[],[],false,false,[null,null]]}}", "[]", true},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":[[],[],false,false,[null,null]]}}", "[[],[]]",
     false},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":[[],[],false,false,[null,null]]}}", "[-65.8]",
     false},
    {"{\"type\":\"object\",\"properties\":{\"key\":{\"type\":\"array\",\"prefixItems\":[{\"anyOf\":[{\"type\":"
     "\"integer\",\"minimum\":-4521},{\"type\":\"string\",\"minLength\":2,\"maxLength\":4},{\"type\":\"string\","
     "\"format\":\"duration\"}]},{\"type\":\"array\",\"items\":{\"allOf\":[{\"type\":\"string\",\"pattern\":\"^"
     "\\\\x41\\\\u{1F600}\x3f$\"},{\"pattern\":\"a|^b|c$\"}]},\"maxItems\":3}],\"items\":false,\"minItems\":1}},"
     "\"required\":[],\"additionalProperties\":true}",
     "{ }", true},
    {"{\"type\":\"object\",\"properties\":{\"key\":{\"type\":\"array\",\"prefixItems\":[{\"anyOf\":[{\"type\":"
     "\"integer\",\"minimum\":-4521},{\"type\":\"string\",\"minLength\":2,\"maxLength\":4},{\"type\":\"string\","
     "\"format\":\"duration\"}]},{\"type\":\"array\",\"items\":{\"allOf\":[{\"type\":\"string\",\"pattern\":\"^"
     "\\\\x41\\\\u{1F600}\x3f$\"},{\"pattern\":\"a|^b|c$\"}]},\"maxItems\":3}],\"items\":false,\"minItems\":1}},"
     "\"required\":[],\"additionalProperties\":true}",
     "{}", true},
    {"{\"type\":\"object\",\"properties\":{\"key\":{\"type\":\"array\",\"prefixItems\":[{\"anyOf\":[{\"type\":"
     "\"integer\",\"minimum\":-4521},{\"type\":\"string\",\"minLength\":2,\"maxLength\":4},{\"type\":\"string\","
     "\"format\":\"duration\"}]},{\"type\":\"array\",\"items\":{\"allOf\":[{\"type\":\"string\",\"pattern\":\"^"
     "\\\\x41\\\\u{1F600}\x3f$\"},{\"pattern\":\"a|^b|c$\"}]},\"maxItems\":3}],\"items\":false,\"minItems\":1}},"
     "\"required\":[],\"additionalProperties\":true}",
     "\"\"", false},
    {"{\"type\":\"object\",\"properties\":{\"key\":{\"type\":\"array\",\"prefixItems\":[{\"anyOf\":[{\"type\":"
     "\"integer\",\"minimum\":-4521},{\"type\":\"string\",\"minLength\":2,\"maxLength\":4},{\"type\":\"string\","
     "\"format\":\"duration\"}]},{\"type\":\"array\",\"items\":{\"allOf\":[{\"type\":\"string\",\"pattern\":\"^"
     "\\\\x41\\\\u{1F600}\x3f$\"},{\"pattern\":\"a|^b|c$\"}]},\"maxItems\":3}],\"items\":false,\"minItems\":1}},"
     "\"required\":[],\"additionalProperties\":true}",
     "\"\\\\\xc3\xa9"
     "a//\"",
     false},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\",\"items\":{\"type\":\"string\",\"format\":"
     "\"email\"},\"maxItems\":2},\"\xf0\x9f\x98\x80\":{\"type\":\"integer\",\"minimum\":-7}},\"required\":["
     "\"\xf0\x9f\x98\x80\"],\"additionalProperties\":false}",
     "{\"a\":[\"LFi=l@OF.epYpibqz1FAh4ugw\",\"FA1496}1w06u|M_R}Ie$.dvEDE~q2uE}_Uc'D4jlA@31Ll\"],\"\xf0\x9f\x98\x80\":"
     "4909}",
     true},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\",\"items\":{\"type\":\"string\",\"format\":"
     "\"email\"},\"maxItems\":2},\"\xf0\x9f\x98\x80\":{\"type\":\"integer\",\"minimum\":-7}},\"required\":["
     "\"\xf0\x9f\x98\x80\"],\"additionalProperties\":false}",
     "{\"\xf0\x9f\x98\x80\":0}", true},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\",\"items\":{\"type\":\"string\",\"format\":"
     "\"email\"},\"maxItems\":2},\"\xf0\x9f\x98\x80\":{\"type\":\"integer\",\"minimum\":-7}},\"required\":["
     "\"\xf0\x9f\x98\x80\"],\"additionalProperties\":false}",
     "{\"\xf0\x9f\x98\x80\":705763,\"\":null}", false},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\",\"items\":{\"type\":\"string\",\"format\":"
     "\"email\"},\"maxItems\":2},\"\xf0\x9f\x98\x80\":{\"type\":\"integer\",\"minimum\":-7}},\"required\":["
     "\"\xf0\x9f\x98\x80\"],\"additionalProperties\":false}",
     "{\"\":null}", false},
    {"{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/a~1b\",\"minimum\":2},\"$defs\":{\"a/"
     "b\":{\"enum\":[{}],\"type\":\"object\"}}}",
     "[]", true},
    {"{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/a~1b\",\"minimum\":2},\"$defs\":{\"a/"
     "b\":{\"enum\":[{}],\"type\":\"object\"}}}",
     "[{}]", true},
    {"{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/a~1b\",\"minimum\":2},\"$defs\":{\"a/"
     "b\":{\"enum\":[{}],\"type\":\"object\"}}}",
     "58.7", false},
    {"{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/a~1b\",\"minimum\":2},\"$defs\":{\"a/"
     "b\":{\"enum\":[{}],\"type\":\"object\"}}}",
     "57.7", false},
    {"{\"title\":\"x\",\"x-unit\":3,\"readonly\":true,\"example\":5}", "false", true},
    {"{\"title\":\"x\",\"x-unit\":3,\"readonly\":true,\"example\":5}", "[0]", true},
    {"{\"const\":[\"-.\xf0\x9f\x98\x80\xe2\x82\xac\\\"\",null]}", "[\"-.\xf0\x9f\x98\x80\xe2\x82\xac\\\"\",null]",
     true},
    {"{\"const\":[\"-.\xf0\x9f\x98\x80\xe2\x82\xac\\\"\",null]}", "[\"-.\xf0\x9f\x98\x80\xe2\x82\xac\\\"\",null]",
     true},
    {"{\"const\":[\"-.\xf0\x9f\x98\x80\xe2\x82\xac\\\"\",null]}", "[\"-./\xe2\x82\xac\\\"\",null]", false},
    {"{\"const\":[\"-.\xf0\x9f\x98\x80\xe2\x82\xac\\\"\",null]}", "[\"-./\xe2\x82\xac\\\"\",-93]", false},
    {"{\"type\":\"string\",\"minLength\":1,\"maxLength\":4}", "\"y\\\"@:\"", true},
    {"{\"type\":\"string\",\"minLength\":1,\"maxLength\":4}", "\"\\\"8{0\"", true},
    {"{\"type\":\"string\",\"minLength\":1,\"maxLength\":4}", "\"\"", false},
    {"{\"type\":\"string\",\"minLength\":1,\"maxLength\":4}", "-9", false},
    {"{\"type\":\"string\",\"pattern\":\"(ab){2,}\"}", "\"abab\"", true},
    {"{\"type\":\"string\",\"pattern\":\"(ab){2,}\"}", "\"abab\\\\0\\\\\"", true},
    {"{\"type\":\"string\",\"pattern\":\"(ab){2,}\"}", "\"aba\xe2\x82\xac\\\\ab\\\\0\\\\\"", false},
    {"{\"type\":\"string\",\"pattern\":\"(ab){2,}\"}", "\"aba\xe2\x82\xac\\\\ab\\\\0\\\\\"", false},
    {"{\"type\":\"string\",\"format\":\"uri\"}", "\"ZL+L08pU9PBpoFKFTSNc+cJBIPXl7Ej8ZhBaezT+Rdz6x4.f8lb:d\"", true},
    {"{\"type\":\"string\",\"format\":\"uri\"}", "\"hqp.zKCOg5ET-A3Ja6::kDQ9%F0,\"", true},
    {"{\"type\":\"string\",\"format\":\"uri\"}",
     "\"9ttp://example.com/a/b\x3f"
     "c=d#e\"",
     false},
    {"{\"type\":\"string\",\"format\":\"uri\"}", "[]", false},
    {"{\"type\":\"number\",\"maximum\":30489302895229620}", "83", true},
    {"{\"type\":\"number\",\"maximum\":30489302895229620}", "1011", true},
    {"{\"type\":\"number\",\"maximum\":30489302895229620}", "null", false},
    {"{\"type\":\"number\",\"maximum\":30489302895229620}", "false", false},
    {"{\"type\":\"array\",\"items\":{\"type\":\"integer\",\"multipleOf\":1,\"exclusiveMinimum\":-2.54,\"maximum\":0},"
     "\"maxItems\":3}",
     "[0]", true},
    {"{\"type\":\"array\",\"items\":{\"type\":\"integer\",\"multipleOf\":1,\"exclusiveMinimum\":-2.54,\"maximum\":0},"
     "\"maxItems\":3}",
     "[ ]", true},
    {"{\"type\":\"array\",\"items\":{\"type\":\"integer\",\"multipleOf\":1,\"exclusiveMinimum\":-2.54,\"maximum\":0},"
     "\"maxItems\":3}",
     "[null,45]", false},
    {"{\"type\":\"array\",\"items\":{\"type\":\"integer\",\"multipleOf\":1,\"exclusiveMinimum\":-2.54,\"maximum\":0},"
     "\"maxItems\":3}",
     "[null,[]]", false},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":[null,8,[],\"ab\"]}}", "[]", true},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":[null,8,[],\"ab\"]}}", "[]", true},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":[null,8,[],\"ab\"]}}", "[\"ab\",50]", false},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":[null,8,[],\"ab\"]}}", "[[],[]]", false},
    {"{\"type\":\"object\",\"properties\":{\"\":{\"type\":\"integer\",\"multipleOf\":1},\"key\":{\"type\":\"integer\","
     "\"minimum\":-89585330713712750,\"maximum\":67230618978213491,\"exclusiveMinimum\":true,\"allOf\":[{\"type\":"
     "\"integer\"}]},\"\xf0\x9f\x98\x80\":{\"oneOf\":[{\"type\":\"number\",\"maximum\":77051188945862496}]}},"
     "\"additionalProperties\":false}",
     "{}", true},
    {"{\"type\":\"object\",\"properties\":{\"\":{\"type\":\"integer\",\"multipleOf\":1},\"key\":{\"type\":\"integer\","
     "\"minimum\":-89585330713712750,\"maximum\":67230618978213491,\"exclusiveMinimum\":true,\"allOf\":[{\"type\":"
     "\"integer\"}]},\"\xf0\x9f\x98\x80\":{\"oneOf\":[{\"type\":\"number\",\"maximum\":77051188945862496}]}},"
     "\"additionalProperties\":false}",
     "{\"key\":0,\"\xf0\x9f\x98\x80\":2}", true},
    {"{\"type\":\"object\",\"properties\":{\"\":{\"type\":\"integer\",\"multipleOf\":1},\"key\":{\"type\":\"integer\","
     "\"minimum\":-89585330713712750,\"maximum\":67230618978213491,\"exclusiveMinimum\":true,\"allOf\":[{\"type\":"
     "\"integer\"}]},\"\xf0\x9f\x98\x80\":{\"oneOf\":[{\"type\":\"number\",\"maximum\":77051188945862496}]}},"
     "\"additionalProperties\":false}",
     "{\"\":-1,\"a\":\"/\xe2\x82\xac\"}", false},
    {"{\"type\":\"object\",\"properties\":{\"\":{\"type\":\"integer\",\"multipleOf\":1},\"key\":{\"type\":\"integer\","
     "\"minimum\":-89585330713712750,\"maximum\":67230618978213491,\"exclusiveMinimum\":true,\"allOf\":[{\"type\":"
     "\"integer\"}]},\"\xf0\x9f\x98\x80\":{\"oneOf\":[{\"type\":\"number\",\"maximum\":77051188945862496}]}},"
     "\"additionalProperties\":false}",
     "{\"\":-2,\"a\":\"/\xe2\x82\xac\"}", false},
    {"{\"type\":\"array\",\"items\":{\"type\":[\"number\",\"string\"],\"exclusiveMinimum\":0},\"minItems\":0,"
     "\"maxItems\":2,\"allOf\":[{\"type\":\"array\",\"items\":{\"items\":[{},{\"type\":\"number\",\"multipleOf\":12},{"
     "\"type\":[\"number\",\"string\"],\"exclusiveMinimum\":-1,\"exclusiveMaximum\":0}],\"additionalItems\":false},"
     "\"minItems\":1,\"maxItems\":3},{\"type\":\"array\",\"items\":{\"type\":\"string\",\"format\":\"time\"},"
     "\"minItems\":0}]}",
     "[\"07:09:03.20442-15:03\"]", true},
    {"{\"type\":\"array\",\"items\":{\"type\":[\"number\",\"string\"],\"exclusiveMinimum\":0},\"minItems\":0,"
     "\"maxItems\":2,\"allOf\":[{\"type\":\"array\",\"items\":{\"items\":[{},{\"type\":\"number\",\"multipleOf\":12},{"
     "\"type\":[\"number\",\"string\"],\"exclusiveMinimum\":-1,\"exclusiveMaximum\":0}],\"additionalItems\":false},"
     "\"minItems\":1,\"maxItems\":3},{\"type\":\"array\",\"items\":{\"type\":\"string\",\"format\":\"time\"},"
     "\"minItems\":0}]}",
     "[\"12:15:09-03:00\"]", true},
    {"{\"type\":\"array\",\"items\":{\"type\":[\"number\",\"string\"],\"exclusiveMinimum\":0},\"minItems\":0,"
     "\"maxItems\":2,\"allOf\":[{\"type\":\"array\",\"items\":{\"items\":[{},{\"type\":\"number\",\"multipleOf\":12},{"
     "\"type\":[\"number\",\"string\"],\"exclusiveMinimum\":-1,\"exclusiveMaximum\":0}],\"additionalItems\":false},"
     "\"minItems\":1,\"maxItems\":3},{\"type\":\"array\",\"items\":{\"type\":\"string\",\"format\":\"time\"},"
     "\"minItems\":0}]}",
     "[]", false},
    {"{\"type\":\"array\",\"items\":{\"type\":[\"number\",\"string\"],\"exclusiveMinimum\":0},\"minItems\":0,"
     "\"maxItems\":2,\"allOf\":[{\"type\":\"array\",\"items\":{\"items\":[{},{\"type\":\"number\",\"multipleOf\":12},{"
     "\"type\":[\"number\",\"string\"],\"exclusiveMinimum\":-1,\"exclusiveMaximum\":0}],\"additionalItems\":false},"
     "\"minItems\":1,\"maxItems\":3},{\"type\":\"array\",\"items\":{\"type\":\"string\",\"format\":\"time\"},"
     "\"minItems\":0}]}",
     "false", false},
    {"{\"anyOf\":[{\"type\":\"string\",\"pattern\":\"^\\\\S+ "
     "\\\\S+$\",\"minLength\":1},{\"type\":\"integer\",\"multipleOf\":3}]}",
     "\"a>Y0EW(}GnQ#):`$_]O\xcd\x99,SHs#q\\b@FV:L}0BB};V<]M80u/{!Si2,jAM&g`}UYbz:#:0jMOj{ ,|<P\x3f];g;,y7tU:\"", true},
    {"{\"anyOf\":[{\"type\":\"string\",\"pattern\":\"^\\\\S+ "
     "\\\\S+$\",\"minLength\":1},{\"type\":\"integer\",\"multipleOf\":3}]}",
     "-135809659644", true},
    {"{\"anyOf\":[{\"type\":\"string\",\"pattern\":\"^\\\\S+ "
     "\\\\S+$\",\"minLength\":1},{\"type\":\"integer\",\"multipleOf\":3}]}",
     "null", false},
    {"{\"anyOf\":[{\"type\":\"string\",\"pattern\":\"^\\\\S+ "
     "\\\\S+$\",\"minLength\":1},{\"type\":\"integer\",\"multipleOf\":3}]}",
     "\"\xc3\xa9\"", false},
    {"{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":[{\"\":"
     "null,\"key\":null},[true,null],[true,true],{\"a\":\"\xc3\xa9\\\\\",\"\xe2\x82\xac\":false},\"bb\"]}},\"next\":{"
     "\"anyOf\":[{\"type\":\"null\"},{\"$ref\":\"#\"}]}},\"required\":[\"next\"],\"$defs\":{\"a/"
     "b\":{\"type\":\"string\",\"format\":\"password\",\"maxLength\":53}}}",
     "{\"next\":{\"v\":[[true,null],\"bb\"],\"next\": {\"v\": [\"bb\"],\"next\":{\"v\":[ ],\"next\":null}}}}", true},
    {"{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":[{\"\":"
     "null,\"key\":null},[true,null],[true,true],{\"a\":\"\xc3\xa9\\\\\",\"\xe2\x82\xac\":false},\"bb\"]}},\"next\":{"
     "\"anyOf\":[{\"type\":\"null\"},{\"$ref\":\"#\"}]}},\"required\":[\"next\"],\"$defs\":{\"a/"
     "b\":{\"type\":\"string\",\"format\":\"password\",\"maxLength\":53}}}",
     "{\x0a\"v\":[[true,true]],\"next\": {\"next\": null} }", true},
    {"{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":[{\"\":"
     "null,\"key\":null},[true,null],[true,true],{\"a\":\"\xc3\xa9\\\\\",\"\xe2\x82\xac\":false},\"bb\"]}},\"next\":{"
     "\"anyOf\":[{\"type\":\"null\"},{\"$ref\":\"#\"}]}},\"required\":[\"next\"],\"$defs\":{\"a/"
     "b\":{\"type\":\"string\",\"format\":\"password\",\"maxLength\":53}}}",
     "false", false},
    {"{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":[{\"\":"
     "null,\"key\":null},[true,null],[true,true],{\"a\":\"\xc3\xa9\\\\\",\"\xe2\x82\xac\":false},\"bb\"]}},\"next\":{"
     "\"anyOf\":[{\"type\":\"null\"},{\"$ref\":\"#\"}]}},\"required\":[\"next\"],\"$defs\":{\"a/"
     "b\":{\"type\":\"string\",\"format\":\"password\",\"maxLength\":53}}}",
     "95", false},
    {"{\"type\":\"string\"}", "\"D{%Z\\\\]\"", true},
    {"{\"type\":\"string\"}",
     "\"]:~]\xeb\xb7\x99V\xd9\xbf"
     "eH :K$Oj~a\x3f"
     "D'V:b{z^]mGB-)hYg\xeb\x8f\x83\xd3\xac@^k:9(R\xd5\x98"
     "CWwVhH%M]C_\"",
     true},
    {"{\"type\":\"string\"}", "-9", false},
    {"{\"type\":\"string\"}", "true", false},
    {"{\"enum\":[82],\"minimum\":0}", "82", true},
    {"{\"enum\":[82],\"minimum\":0}", "82", true},
    {"{\"enum\":[82],\"minimum\":0}", "67", false},
    {"{\"enum\":[82],\"minimum\":0}", "66", false},
    {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":5}", "\"(l:*\xc9\x8e\"", true},
    {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":5}", "\";1-\"", true},
    {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":5}", "\"/\"", false},
    {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":5}", "{\"a\":15,\"with \\\"quote\\\"\":\"/0z\\\"\"}", false},
    {"{\"type\":\"string\",\"pattern\":\"^(\x3f:x|y{2,3})\x3fz*$\"}", "\"\"", true},
    {"{\"type\":\"string\",\"pattern\":\"^(\x3f:x|y{2,3})\x3fz*$\"}", "\"\"", true},
    {"{\"type\":\"string\",\"pattern\":\"^(\x3f:x|y{2,3})\x3fz*$\"}", "36", false},
    {"{\"type\":\"string\",\"pattern\":\"^(\x3f:x|y{2,3})\x3fz*$\"}", "37", false},
    {"{\"type\":\"string\",\"format\":\"uuid\"}", "\"0Ca250B0-5B9f-faa1-96fd-0050606C0850\"", true},
    {"{\"type\":\"string\",\"format\":\"uuid\"}", "\"B7E37d7f-2ebc-C6ce-5fE4-4B044F0a7d00\"", true},
    {"{\"type\":\"string\",\"format\":\"uuid\"}", "\"00000000-0000-0000-0000-00000000FFF\"", false},
    {"{\"type\":\"string\",\"format\":\"uuid\"}", "\"00000000-0000-0000-0000-\"", false},
    {"{\"type\":\"integer\",\"minimum\":-38312232988453906,\"exclusiveMaximum\":654}", "70", true},
    {"{\"type\":\"integer\",\"minimum\":-38312232988453906,\"exclusiveMaximum\":654}", "0", true},
    {"{\"type\":\"integer\",\"minimum\":-38312232988453906,\"exclusiveMaximum\":654}", "6530", false},
    {"{\"type\":\"integer\",\"minimum\":-38312232988453906,\"exclusiveMaximum\":654}", "6530.5", false},
    {"{\"type\":\"number\",\"exclusiveMaximum\":0.001}", "0.00", true},
    {"{\"type\":\"number\",\"exclusiveMaximum\":0.001}", "0", true},
    {"{\"type\":\"number\",\"exclusiveMaximum\":0.001}", "[]", false},
    {"{\"type\":\"number\",\"exclusiveMaximum\":0.001}", "29", false},
    {"{\"type\":\"number\",\"multipleOf\":3,\"minimum\":0}", "6138603", true},
    {"{\"type\":\"number\",\"multipleOf\":3,\"minimum\":0}", "2541807", true},
    {"{\"type\":\"number\",\"multipleOf\":3,\"minimum\":0}", "999999999999951.5", false},
    {"{\"type\":\"number\",\"multipleOf\":3,\"minimum\":0}", "95.9", false},
    {"{\"type\":\"array\",\"items\":{\"items\":[{\"anyOf\":[{\"type\":\"string\",\"maxLength\":4}],\"type\":\"string\"}"
     ",{\"type\":\"string\",\"format\":\"json-pointer\"}],\"additionalItems\":false},\"minItems\":0,\"maxItems\":2}",
     "[]", true},
    {"{\"type\":\"array\",\"items\":{\"items\":[{\"anyOf\":[{\"type\":\"string\",\"maxLength\":4}],\"type\":\"string\"}"
     ",{\"type\":\"string\",\"format\":\"json-pointer\"}],\"additionalItems\":false},\"minItems\":0,\"maxItems\":2}",
     "[[\"-Jdy\"],[\"}F05\",\"\"] ]", true},
    {"{\"type\":\"array\",\"items\":{\"items\":[{\"anyOf\":[{\"type\":\"string\",\"maxLength\":4}],\"type\":\"string\"}"
     ",{\"type\":\"string\",\"format\":\"json-pointer\"}],\"additionalItems\":false},\"minItems\":0,\"maxItems\":2}",
     "\"@\\\\a\"", false},
    {"{\"type\":\"array\",\"items\":{\"items\":[{\"anyOf\":[{\"type\":\"string\",\"maxLength\":4}],\"type\":\"string\"}"
     ",{\"type\":\"string\",\"format\":\"json-pointer\"}],\"additionalItems\":false},\"minItems\":0,\"maxItems\":2}",
     "false", false},
};
